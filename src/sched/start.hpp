// start.hpp: what the rest of the runtime needs to know of the beginning and the end; start.cpp has
// the essay.
#pragma once

namespace weft::sched {

// Starts the runtime if it does not run yet. Throws: std::system_error if no thread can be made.
void ensure_started();

// Stops the calling thread for good: the process ends, or is the child of a fork.
[[noreturn]] void stop_here() noexcept;

// Whether this process is the child of a fork, which has no runtime.
bool is_forked_child() noexcept;

// Makes sure that goroutines are stopped before objects made until now are destroyed at exit.
void register_exit_again() noexcept;

// If the runtime is in a shared library, that is not unloaded while the calling thread lives: the
// runtime's threads run its code until the process ends. Allocates.
void stay_loaded() noexcept;

}  // namespace weft::sched
