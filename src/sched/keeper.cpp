#include "sched/keeper.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/interrupt.hpp"
#include "sched/all_timers.hpp"
#include "sched/idle_list.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/wake.hpp"

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

}  // namespace

bool is_keeper_needed_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  const std::int64_t earliest = earliest_timer_hint();
  return earliest != base::never && (sched.keeper == nullptr || earliest < sched.keeper_until_ns);
}

machine* pass_timekeeping_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  sched.keeper = nullptr;
  if (earliest_timer_hint() == base::never) return nullptr;
  processor* p = find_idle_locked(processor::idleness::listening);
  if (p == nullptr && !sched.spare.empty()) p = find_idle_locked(processor::idleness::numb);
  if (p == nullptr || !sched.idle.try_search(processors_max)) return nullptr;
  return rouse_locked(p);
}

machine* keep_time_locked() noexcept {
  return is_keeper_needed_locked() ? pass_timekeeping_locked() : nullptr;
}

void keep_time() noexcept {
  if (this_simulation() != nullptr) return;
  sched.lock.lock();
  machine* const keeper = keep_time_locked();
  sched.lock.unlock();
  wake(keeper);
}

void dismiss_keeper() noexcept {
  machine* woken = nullptr;
  machine* poller = nullptr;
  sched.lock.lock();
  processor* const p = sched.keeper != nullptr ? sched.keeper->p.get() : nullptr;
  if (p != nullptr && p->idle != processor::idleness::busy &&
      earliest_timer_hint() == base::never && sched.idle.try_search(processors_max)) {
    woken = rouse_locked(p);
  }
  processor* const q = sched.polling != nullptr ? sched.polling->p.get() : nullptr;
  if (q != nullptr && q->idle != processor::idleness::busy && !the_poller.is_waited_for() &&
      sched.idle.try_search(processors_max)) {
    poller = rouse_locked(q);
  } else if (sched.polling != nullptr && q == nullptr && !the_poller.is_waited_for()) {
    base::interrupt_poller();  // a spare machine sleeps there; it lies down among the others
  }
  sched.lock.unlock();
  wake(woken);
  wake(poller);
}

void attend_poller() noexcept {
  // The caller has had the lock. So a machine that left the poller before that, under the lock, is
  // seen to have left.
  if (the_poller.is_attended() || !the_poller.is_waited_for()) return;
  machine* woken = nullptr;
  sched.lock.lock();
  if (!the_poller.is_attended() && the_poller.is_waited_for()) {
    processor* p = find_idle_locked(processor::idleness::listening);
    if (p == nullptr) p = find_idle_locked(processor::idleness::numb);
    if (p != nullptr && sched.idle.try_search(processors_max)) woken = rouse_locked(p);
  }
  sched.lock.unlock();
  wake(woken);
}

}  // namespace weft::sched
