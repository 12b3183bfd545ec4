// preempt.hpp: pausing a goroutine that computes through its slice; preempt.cpp has the essay.
#pragma once

#include "sched/machine.hpp"

#include <csignal>
#include <cstdint>

namespace weft::sched {

// Called once, before the first machine.
void install_preemption() noexcept;
// Whether hogs are paused. If not, the monitor only takes their processors from them.
bool can_pause() noexcept;
bool is_preemption_signal(int signal) noexcept;
// Sets the function that gets those preemption signals which are not the runtime's own; null:
// nobody wants them. Returns: false, and does nothing, if `signal` is not the preemption signal.
using signal_listener = void (*)(int signal, siginfo_t* info, void* ucontext);
bool listen_to_preemption_signal(int signal, signal_listener l) noexcept;
// Whether only the runtime handles this signal: the program has no use of its own for it.
bool is_only_ours(int signal, const struct sigaction& action) noexcept;
// Called by each machine's thread, for its own timer.
void make_cpu_timer(machine* m) noexcept;
void delete_cpu_timer(machine* m) noexcept;
// The handler of `m` runs when its thread has used `cpu_ns` more of CPU time.
void arm_cpu_timer(machine* m, std::int64_t cpu_ns) noexcept;
// Lets all paused machines go on without a processor, because the process ends.
void release_paused() noexcept;

}  // namespace weft::sched
