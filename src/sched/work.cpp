#include "sched/work.hpp"

#include "base/membarrier.hpp"
#include "sched/all_timers.hpp"
#include "sched/order.hpp"
#include "sched/scheduler.hpp"

#include <atomic>

namespace weft::sched {
namespace {

using from = global_queue::from;

}  // namespace

bool has_work(const processor& p) noexcept {
  return p.next.load(base::hot_load_order) != nullptr || p.ready.look_hint().size() != 0 ||
         p.fresh.look_hint().size() != 0 || p.woken.look_hint().size() != 0;
}

bool others_want(const processor& p) noexcept {
  return has_work(p) || the_scheduler.global.size_hint() != 0;
}

bool work_waits_hint() noexcept {
  if (the_scheduler.global.size_hint() != 0) return true;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < procs; ++i) {
    const processor* const p = the_scheduler.processors[i].load(std::memory_order_relaxed);
    if (has_work(*p)) return true;
  }
  return false;
}

bool is_anyones_work_hint() noexcept {
  const global_queue& global = the_scheduler.global;
  return global.size_hint(from::woken) + global.size_hint(from::shared) != 0;
}

bool is_urgent_hint(std::int64_t now_ns) noexcept {
  return the_scheduler.global.size_hint(from::woken) != 0 || earliest_timer_hint() <= now_ns;
}

void share_all(processor& p) noexcept {
  goroutine_list woken;
  goroutine_list others;
  while (goroutine* const g = p.woken.pop_front()) woken.push_back(g);
  if (goroutine* const g = take_next(p)) others.push_back(g);
  while (goroutine* const g = p.ready.pop_front()) others.push_back(g);
  while (goroutine* const g = p.fresh.pop_front()) others.push_back(g);
  p.overflow_owed = 0;
  if (!woken.empty()) the_scheduler.global.push(from::woken, woken);
  if (!others.empty()) the_scheduler.global.push(from::shared, others);
}

void drain(processor& p) noexcept {
  share_all(p);
  p.stacks.drain();
}

}  // namespace weft::sched
