// start.hpp: what the rest of the runtime asks of its beginning and end.
#pragma once

namespace weft::sched {

// Whether this process is the child of a fork, which has no runtime.
bool is_forked_child() noexcept;

// Makes sure that goroutines are stopped before objects made since are destroyed at exit.
void register_exit_again() noexcept;

}  // namespace weft::sched
