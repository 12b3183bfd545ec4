// report.hpp: reports of a process that dies because of a goroutine, and reports of stalls.
#pragma once

#include "sched/goroutine.hpp"
#include "sched/machine.hpp"

namespace weft::sched {

void install_reports() noexcept;
// In a signal handler: reports that the goroutine of `m` has held its processor for too long, and
// where it is.
void report_stall(machine* m, const void* ucontext) noexcept;
// From another thread, without a stack: reports a goroutine that sleeps in a system call (or, -1, a
// page fault), or that computes and takes no signals (-2).
void report_blocked_stall(machine* m, const goroutine* g, int system_call) noexcept;
// Dies, because a signal handler has interrupted the runtime and calls it.
[[noreturn]] void die_in_handler() noexcept;

}  // namespace weft::sched
