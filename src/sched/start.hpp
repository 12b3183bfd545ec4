// start.hpp: what the rest of the runtime asks of its beginning and end.
#pragma once

namespace weft::sched {

// Whether this process is the child of a fork, which has no runtime.
bool is_forked_child() noexcept;

// Makes sure that goroutines are stopped before objects made since are destroyed at exit.
void register_exit_again() noexcept;

// The library that contains the runtime, if it is one, is not unloaded while the calling thread
// lives: the runtime's threads run its code until the process ends. Allocates.
void stay_loaded() noexcept;

}  // namespace weft::sched
