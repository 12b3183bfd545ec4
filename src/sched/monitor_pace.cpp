#include "sched/monitor_pace.hpp"

#include "base/clock.hpp"
#include "sched/all_timers.hpp"
#include "sched/scheduler.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace weft::sched {
namespace {

std::uint64_t all_picks_hint() noexcept {
  std::uint64_t picks = 0;
  const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < made; ++i) {
    const processor* const p = the_scheduler.processors[i].load(std::memory_order_relaxed);
    picks += p->picks.load(std::memory_order_relaxed);
  }
  return picks;
}

}  // namespace

void monitor_pace::note(const watch::outcome& seen, std::int64_t now_ns) noexcept {
  was_idle_ = false;
  // While no processor picks, the monitor itself waits for the next timer.
  is_calm_ = !seen.acted && !seen.moved && !work_waits_hint() &&
             (seen.all_stuck || earliest_timer_hint() == base::never);
  if (seen.acted) {
    acted_ns_ = now_ns;
    looks_ = 0;
    eager_looks_ = eager_looks_max;
    period_ns_ = least_ns;
  } else if (++looks_ > eager_looks_) {
    // watch.cpp says when it wants to look at a processor that computes.
    const std::int64_t most = is_calm_ || seen.all_stuck ? calm_ns : busy_period_ns(now_ns);
    period_ns_ = seen.lent ? lent_ns : std::min(period_ns_ * 2, most);
  }
}

bool monitor_pace::note_idle(std::int64_t now_ns) noexcept {
  looks_ = std::max(looks_, eager_looks_);
  period_ns_ = std::max(busy_period_ns(now_ns), smooth_ns);
  const std::uint64_t picks = all_picks_hint();
  return std::exchange(idle_picks_, picks) == picks && std::exchange(was_idle_, true);
}

void monitor_pace::reset() noexcept {
  looks_ = 0;
  eager_looks_ /= 2;
  period_ns_ = eager_looks_ != 0 ? least_ns : busy_ns;
}

std::int64_t monitor_pace::busy_period_ns(std::int64_t now_ns) const noexcept {
  const std::int64_t quiet_ns = now_ns - acted_ns_;
  return quiet_ns > steady_after_ns ? steady_ns : quiet_ns > smooth_after_ns ? smooth_ns : busy_ns;
}

}  // namespace weft::sched
