// preempt.hpp: pausing a goroutine that computes through its slice; preempt.cpp has the essay.
#pragma once

#include "sched/machine.hpp"

#include <csignal>
#include <cstdint>

namespace weft::sched {

// Called once, before the first machine.
void install_preemption() noexcept;
// Whether hogs are paused; else their processors are only taken from them.
bool can_pause() noexcept;
bool is_preemption_signal(int signal) noexcept;
// Somebody wants those of the preemption signal that are not the runtime's own; null: nobody does.
// Returns: false, and does nothing, if `signal` is another one.
using signal_listener = void (*)(int signal, siginfo_t* info, void* ucontext);
bool listen_to_preemption_signal(int signal, signal_listener l) noexcept;
// Whether the program has no use of its own for this signal.
bool is_only_ours(int signal, const struct sigaction& action) noexcept;
// Each machine's thread makes and deletes its own.
void make_cpu_timer(machine* m) noexcept;
void delete_cpu_timer(machine* m) noexcept;
// The machine's handler runs when its thread has used so much more CPU time.
void arm_cpu_timer(machine* m, std::int64_t cpu_ns) noexcept;
// Lets all paused machines go on, without a processor: the process ends.
void release_paused() noexcept;

}  // namespace weft::sched
