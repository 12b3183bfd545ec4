#include "sched/all_timers.hpp"

#include "base/clock.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"

#include <algorithm>
#include <atomic>

namespace weft::sched {

void arm_timer(timer& t, std::int64_t when_ns) noexcept {
  machine* const m = this_machine();
  if (simulation* const s = m == nullptr ? this_simulation() : nullptr) {
    return s->timers().arm(t, when_ns);
  }
  processor* const p =
      m != nullptr ? m->p : the_scheduler.processors[0].load(std::memory_order_acquire);  // [P1]
  p->timers.arm(t, when_ns);
  tell_monitor_of_timer(when_ns);
}

std::int64_t earliest_timer_hint() noexcept {
  std::int64_t earliest = base::never;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < procs; ++i) {
    const processor* const p = the_scheduler.processors[i].load(std::memory_order_relaxed);
    earliest = std::min(earliest, p->timers.earliest_hint());
  }
  return earliest;
}

std::size_t run_timers(std::int64_t now_ns) noexcept {
  std::size_t fired = 0;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < procs; ++i) {
    fired += the_scheduler.processors[i].load(std::memory_order_relaxed)->timers.run(now_ns);
  }
  return fired;
}

}  // namespace weft::sched
