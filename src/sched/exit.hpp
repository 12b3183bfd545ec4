// exit.hpp: what still runs while the process exits; exit.cpp has the essay.
#pragma once

namespace weft::sched {

struct goroutine;
struct machine;

// All but `self`, the caller's machine, or null, have stopped: from now on goroutines run on the
// calling thread while it waits.
void begin_exit(machine* self, int status) noexcept;
// Whether it is the one that goes on.
bool is_exiting(const machine* m) noexcept;
// Whether the process exits, and the caller is not one of the goroutines that are stopped then:
// those may still run while they are about to be.
bool runs_at_exit() noexcept;
// Waits until there is a goroutine to run, on the exiting machine, inside. Does not return if there
// will be none.
goroutine* find_at_exit(machine* m) noexcept;
// Lets goroutines run first, if the caller is the exiting thread. Returns: false if it is not.
bool yield_at_exit() noexcept;

}  // namespace weft::sched
