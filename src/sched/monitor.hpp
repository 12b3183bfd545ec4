// monitor.hpp: the thread that looks after all the others; monitor.cpp has the essay.
#pragma once

namespace weft::sched {

// Returns: 0 or an errno.
int start_monitor() noexcept;

}  // namespace weft::sched
