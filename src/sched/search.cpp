// search.cpp: what a processor with nothing to run looks at, in this order: timers that are due,
// its own queues and the global ones (order.hpp), the poller, the overflow, other processors
// (theft.hpp). The result of a search decides how long the next one lasts (5 to 40 us) and how long
// the processor then dozes (sleep.hpp).
#include "sched/search.hpp"

#include "base/clock.hpp"
#include "base/platform.hpp"
#include "sched/all_timers.hpp"
#include "sched/order.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"
#include "sched/theft.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <atomic>

namespace weft::sched {
namespace {

using from = global_queue::from;

constexpr std::int64_t look_period_ns = 5'000;
constexpr std::int64_t search_min_ns = 5'000;
constexpr std::int64_t search_max_ns = 40'000;

// Takes goroutines from the overflow if they have been there for so long that a thief would take
// them from a victim.
goroutine* consider_overflow(processor& p, std::int64_t now) noexcept {
  global_queue& global = the_scheduler.global;
  const std::size_t size = global.size_hint(from::overflow);
  const std::uint64_t taken = global.taken_hint(from::overflow);
  if (size == 0 || taken >= p.overflow_mark) {
    p.overflow_mark = taken + size;
    p.overflow_since_ns = now;
    return nullptr;
  }
  if (now - p.overflow_since_ns < 4 * p.patience_ns) return nullptr;
  p.overflow_mark = 0;
  return take_share(p, from::overflow);
}

}  // namespace

goroutine* search(machine* m) noexcept {
  processor& p = *m->p;
  idle_state& idle = the_scheduler.idle;
  if (!m->searching) {
    const std::uint32_t procs = the_scheduler.procs.load(std::memory_order_relaxed);
    const std::uint32_t idle_procs = the_scheduler.idle_count.load(std::memory_order_relaxed);
    const std::uint32_t busy = procs > idle_procs ? procs - idle_procs : 1;
    if (!idle.try_search(std::max<std::uint32_t>(1, busy / 2))) return nullptr;
    m->searching = true;
  }
  std::int64_t now = base::now_ns();
  judge_theft(p, now);
  // With one processor there is no victim: one look is enough.
  const bool alone = the_scheduler.procs.load(std::memory_order_relaxed) == 1;
  const std::int64_t end = alone ? now : now + p.search_ns;
  for (;;) {
    if (p.retiring.load(std::memory_order_relaxed)) return nullptr;  // the caller checks it again
    if (the_scheduler.stopping.load(std::memory_order_relaxed)) stop_here();
    run_timers(now);
    goroutine* g = pick(p);
    if (g == nullptr && !the_poller.is_anothers(p, now) && the_poller.poll_for(p) != 0) {
      g = p.woken.pop_front();
    }
    if (g == nullptr) g = consider_overflow(p, now);
    if (g == nullptr) g = steal(m, now);
    m->told_of = nullptr;
    if (g != nullptr) {
      p.search_ns = std::min(p.search_ns * 2, search_max_ns);
      return g;
    }
    const std::int64_t look = now;
    if (now >= end) break;
    do {
      base::pause();
      now = base::now_ns();
    } while (now < look + look_period_ns && !is_anyones_work_hint());
  }
  p.search_ns = std::max(p.search_ns / 2, search_min_ns);
  return nullptr;
}

}  // namespace weft::sched
