// start.hpp: what the rest of the runtime asks of its beginning and end.
#pragma once

namespace weft::sched {

// Starts the runtime if it does not run yet. Throws: std::system_error if no thread can be had.
void ensure_started();

// The process ends, or is the child of a fork: the calling thread goes no further.
[[noreturn]] void stop_here() noexcept;

// Whether this process is the child of a fork, which has no runtime.
bool is_forked_child() noexcept;

// Makes sure that goroutines are stopped before objects made since are destroyed at exit.
void register_exit_again() noexcept;

// The library that contains the runtime, if it is one, is not unloaded while the calling thread
// lives: the runtime's threads run its code until the process ends. Allocates.
void stay_loaded() noexcept;

}  // namespace weft::sched
