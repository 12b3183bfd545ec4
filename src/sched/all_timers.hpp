// all_timers.hpp: the timers of all processors. Each processor has a heap of its own (timers.hpp);
// any machine may fire due timers of any heap.
#pragma once

#include "sched/timer.hpp"

#include <cstddef>
#include <cstdint>

namespace weft::sched {

// Arms a timer in the heap of the caller's processor or of its simulation. A plain thread uses some
// processor's heap, and has to call keep_time() afterwards. Inside. Requires: the runtime has
// started.
void arm_timer(timer& t, std::int64_t when_ns) noexcept;
// When the next timer is due; base::never if there is none.
std::int64_t earliest_timer_hint() noexcept;
// Fires the due timers of all processors. Returns: how many.
std::size_t run_timers(std::int64_t now_ns) noexcept;

}  // namespace weft::sched
