// all_timers.hpp: the timers of all processors. Each processor has a heap of its own (timers.hpp);
// any machine may fire what is due on any of them.
#pragma once

#include "sched/timer.hpp"

#include <cstddef>
#include <cstdint>

namespace weft::sched {

// Arms a timer in the heap of the caller's processor, of its simulation, or on a plain thread of
// any processor; that has to call keep_time() then. Inside.
void arm_timer(timer& t, std::int64_t when_ns) noexcept;
// When the next one is due; base::never if there is none.
std::int64_t earliest_timer_hint() noexcept;
// Fires what is due on any processor. Returns: how many.
std::size_t run_timers(std::int64_t now_ns) noexcept;

}  // namespace weft::sched
