// exit.hpp: what still runs while the process exits; exit.cpp has the essay.
#pragma once

namespace weft::sched {

struct goroutine;
struct machine;

// From now on goroutines run on the calling thread while it waits. Requires: all machines but
// `self` have stopped. `self` is the caller's machine, or null.
void begin_exit(machine* self, int status) noexcept;
// Whether `m` is the machine that goes on.
bool is_exiting(const machine* m) noexcept;
// Whether the process exits and the caller goes on all the same. False in a goroutine that the exit
// stops: it may still run for a moment.
bool runs_at_exit() noexcept;
// Waits until there is a goroutine to run, on the exiting machine, inside. Does not return if no
// goroutine can become ready.
goroutine* find_at_exit(machine* m) noexcept;
// If the caller is the exiting thread, lets goroutines run first. Returns: false if it is not.
bool yield_at_exit() noexcept;

}  // namespace weft::sched
