#include "sched/ownership.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "sched/all_timers.hpp"
#include "sched/counters.hpp"
#include "sched/idle_list.hpp"
#include "sched/keeper.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/order.hpp"
#include "sched/resize.hpp"
#include "sched/scheduler.hpp"
#include "sched/sleep.hpp"
#include "sched/spare.hpp"
#include "sched/starter.hpp"
#include "sched/wake.hpp"
#include "sched/work.hpp"

#include <atomic>
#include <utility>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

// How long a processor may go from one bound goroutine to the next without a look (order.hpp).
constexpr std::int64_t unlooked_ns = 1'000'000;

bool is_lent(const processor& p) noexcept {
  return p.lender.load(std::memory_order_relaxed) != nullptr;
}

// Takes a processor that waits for a new thread, or that the kernel refused one (numb). A search is
// counted for it.
processor* take_waiting_locked() noexcept {
  if (processor* const p = take_starting_locked()) return p;
  processor* const p = find_idle_locked(processor::idleness::numb);
  if (p == nullptr || !sched.idle.try_search(processors_max)) return nullptr;
  remove_idle_locked(p);
  return p;
}

}  // namespace

void departure::finish() const noexcept {
  wake(woken);
  wake(keeper);
  if (is_idle) look_for_others();
}

// --- a machine and its processor ---------------------------------------------------------------

void ownership::hold(machine* m, processor* p) noexcept {
  WEFT_ASSERT(p->holder.load(std::memory_order_relaxed) == nullptr ||
              p->holder.load(std::memory_order_relaxed) == m);       // I1
  WEFT_ASSERT(m->p == nullptr || m->p == p);                         // I1
  WEFT_ASSERT(m->lent == nullptr);                                   // I2
  WEFT_ASSERT(p->idle == processor::idleness::busy && !p->retired);  // I5
  m->p.value_ = p;
  p->holder.value_.store(m, std::memory_order_release);  // [OW1]
}

void ownership::hold_locked(machine* m, processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(!sched.starting.contains(p));  // I5
  WEFT_ASSERT(!m->searching);
  hold(m, p);
  m->searching = true;
}

bool ownership::hold_waiting_locked(machine* m) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  processor* const p = take_waiting_locked();
  if (p != nullptr) hold_locked(m, p);
  return p != nullptr;
}

processor* ownership::lose_locked(machine* m) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  processor* const p = m->p;
  WEFT_ASSERT(p != nullptr && p->holder.load(std::memory_order_relaxed) == m);  // I1
  WEFT_ASSERT(p->idle == processor::idleness::busy && !p->retired);             // I5
  WEFT_ASSERT(m->lent == nullptr);                                              // I2
  m->is_returned.value_.store(false, std::memory_order_relaxed);                // I4
  m->p.value_ = nullptr;
  m->last_p.value_ = p;
  p->holder.value_.store(nullptr, std::memory_order_release);  // [OW1]
  return p;
}

void ownership::keep_locked(machine* m) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(m->p != nullptr && m->lent == nullptr);  // I2 I4
  m->is_returned.value_.store(false, std::memory_order_relaxed);
  m->seat.reclaim();
}

void ownership::seize_locked(machine* m, processor* p) noexcept {
  WEFT_ASSERT(sched.stopping.load(std::memory_order_relaxed));
  m->p.value_ = p;
  p->holder.value_.store(m, std::memory_order_release);  // [OW1]
  m->seat.reclaim();
}

machine* ownership::dismiss_sleeper_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  machine* const sleeper = p->holder.load(std::memory_order_relaxed);
  if (sleeper == nullptr) return nullptr;
  WEFT_ASSERT(sleeper->p == p);                                // I1
  p->holder.value_.store(nullptr, std::memory_order_release);  // [OW1]
  sleeper->p.value_ = nullptr;
  if (hold_waiting_locked(sleeper)) return sleeper;
  add_spare_locked(sleeper);  // it sleeps already
  return sched.keeper == sleeper ? pass_timekeeping_locked() : nullptr;
}

void ownership::pass_on_own(machine* m) noexcept {
  sched.lock.lock();
  // If the processor was taken from this machine in user code, it may have been lent since, and
  // perhaps given back.
  if (m->lent != nullptr) end_loan_locked(m);
  if (m->p == nullptr) {
    sched.lock.unlock();
    return;
  }
  processor* const p = lose_locked(m);
  m->turn_until_ns = base::never;
  const bool searched = end_search(m);
  departure left = after_passing_locked(*p, pass_on_locked(p));
  sched.lock.unlock();
  m->gave_away = left.woken != nullptr;
  left.is_idle |= searched;
  left.finish();
}

void ownership::grant_own(machine* m, goroutine* g) noexcept {
  sched.lock.lock();
  const bool searched = end_search(m);
  processor* const p = lose_locked(m);
  count_pick(*p);
  machine* const to = grant_locked(p, g);
  machine* const keeper = keep_time_locked();
  sched.lock.unlock();
  m->gave_away = true;
  wake(to);
  wake(keeper);
  if (searched) look_for_others();
}

// --- a processor without a machine -------------------------------------------------------------

machine* ownership::pass_on_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(p->holder.load(std::memory_order_relaxed) == nullptr);
  count_pick(*p);  // shows the monitor that the processor goes on
  if (p->retiring.load(std::memory_order_relaxed)) {
    retire_locked(*p);
    return nullptr;
  }
  const std::int64_t now = base::now_ns();
  const bool is_urgent = is_urgent_hint(now) || !p->woken.empty();
  p->until_look = 1;
  // The next goroutine has a thread of its own. To wake another machine, which would only hand the
  // processor over, is not needed; except that now and then there must be a look.
  goroutine* const next = p->next.load(std::memory_order_relaxed);
  if (next != nullptr && has_own_thread(next) && !is_urgent &&
      now - p->clock_ns.load(std::memory_order_relaxed) < unlooked_ns) {
    return grant_locked(p, take_next(*p));
  }
  if (is_lent(*p) && !is_urgent) {
    return_locked(p);
    return nullptr;
  }
  if (!is_urgent && !has_work(*p) && sched.global.first_has_own_thread() &&
      sched.global.since_hint(global_queue::from::shared) <=
          sched.global.since_hint(global_queue::from::overflow)) {
    goroutine* const g = sched.global.take_one(global_queue::from::shared);
    if (g != nullptr && has_own_thread(g)) return grant_turn_locked(p, g);
    if (g != nullptr) push(*p, p->ready, g);  // another processor took the bound one before
  }
  if (is_urgent || others_want(*p)) return staff_searching_locked(p);
  add_idle_locked(p, processor::idleness::listening);
  return nullptr;
}

departure ownership::after_passing_locked(const processor& p, machine* woken) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  const bool is_idle = p.idle != processor::idleness::busy;
  return {.woken = woken, .keeper = keep_time_locked(), .is_idle = is_idle};
}

machine* ownership::staff_searching_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  if (sched.idle.try_search(processors_max)) return staff_locked(p);
  add_idle_locked(p, processor::idleness::listening);  // each searcher's last look is still to come
  return nullptr;
}

machine* ownership::staff_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(p->idle == processor::idleness::busy && !p->retired);
  machine* m = p->holder.load(std::memory_order_relaxed);  // written under the lock while idle
  if (m == nullptr) {
    sched.needs_reserve = true;
    m = take_spare_locked();
  }
  if (m != nullptr) {
    hold_locked(m, p);
    return m;
  }
  if (can_ask_for_thread_locked()) {
    add_starting_locked(p);
    return nullptr;
  }
  sched.idle.end_search();
  return go_without_thread_locked(p);
}

machine* ownership::go_without_thread_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(p->holder.load(std::memory_order_relaxed) == nullptr);
  if (is_lent(*p)) {
    return_locked(p);
    return nullptr;
  }
  if (goroutine* const g = sched.global.take_with_own_thread()) return grant_locked(p, g);
  // A machine may have become spare since there seemed to be none.
  if (!sched.spare.empty() && sched.idle.try_search(processors_max)) return staff_locked(p);
  drain(*p);  // no machine looks into the queues of a processor without a holder
  add_idle_locked(p, processor::idleness::numb);
  return nullptr;
}

machine* ownership::rescue_starting_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  processor* const p = take_starting_locked();
  if (p == nullptr) return nullptr;
  sched.idle.end_search();
  drain(*p);  // a goroutine with its own thread may wait here; the others are for other processors
  count_pick(*p);
  return go_without_thread_locked(p);
}

// --- grants ------------------------------------------------------------------------------------

machine* ownership::grant_locked(processor* p, goroutine* g) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(p->holder.load(std::memory_order_relaxed) == nullptr);
  machine* const to = g->bound;
  WEFT_ASSERT(has_own_thread(g) && to->granted == nullptr);
  // Not into to->p: the machine may still be on its way to sleep, with a processor of its own.
  to->granted.value_ = g;
  to->granted_p.value_ = p;
  the_counters.handoff_granted.add();
  return to;
}

// A bound goroutine gets its turn without a look, so its turn is noted here.
void ownership::note_turn(processor& p, std::int64_t now) noexcept {
  p.clock_ns.store(now, std::memory_order_relaxed);
  p.looked_picks = p.picks.load(std::memory_order_relaxed);
  p.turn_ns = now;
  p.has_pleaded = p.has_taken_child = false;
  p.until_look = 1;
}

machine* ownership::grant_turn_locked(processor* p, goroutine* g) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  while (goroutine* const w = p->woken.pop_front()) {
    sched.global.push(global_queue::from::woken, w);
  }
  count_pick(*p);
  note_turn(*p, base::now_ns());
  return grant_locked(p, g);
}

goroutine* ownership::await_grant(machine* m, void (*lie_down)()) noexcept {
  sleep_for_grant(m, lie_down);
  goroutine* const g = m->granted;
  if (g == nullptr) return nullptr;
  WEFT_ASSERT(m->p == nullptr && g->bound == m && !m->is_spare);
  m->granted.value_ = nullptr;
  m->seat.reclaim();
  hold(m, m->granted_p);
  if (std::exchange(m->has_to_yield, false)) (void)m->seat.ask_to_yield();
  return g;
}

// --- a goroutine that has lost its processor ---------------------------------------------------

bool ownership::acquire_locked(machine* m, machine*& to_wake) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  if (m->is_returned.load(std::memory_order_relaxed)) {
    keep_locked(m);
    the_counters.return_loan.add();
    return true;
  }
  if (m->lent != nullptr) end_loan_locked(m);
  processor* p = m->last_p;
  if (p == nullptr || p->idle == processor::idleness::busy) p = sched.idle_processors.front();
  if (p != nullptr) {
    remove_idle_locked(p);
    to_wake = dismiss_sleeper_locked(p);
  } else {
    p = take_starting_locked();  // it waits for a thread, and here is one
    if (p == nullptr) return false;
    sched.idle.end_search();
  }
  (p == m->last_p ? the_counters.return_same : the_counters.return_other).add();
  hold(m, p);
  m->seat.reclaim();
  return true;
}

bool ownership::acquire(machine* m) noexcept {
  machine* woken = nullptr;
  sched.lock.lock();
  const bool has = acquire_locked(m, woken);
  sched.lock.unlock();
  wake(woken);
  if (has) {
    note_activity();  // [J1] wakes the monitor from its deep sleep
  } else {
    the_counters.return_queued.add();
  }
  return has;
}

// --- loans -------------------------------------------------------------------------------------

machine* ownership::lend_locked(machine* m, processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(p->holder.load(std::memory_order_relaxed) == nullptr);
  WEFT_ASSERT(m->p == nullptr && m->lent == nullptr);  // I2
  end_loan_of_locked(*p);
  m->lent.value_ = p;
  p->lender.value_.store(m, std::memory_order_relaxed);
  p->lent_ns = base::now_ns();
  p->until_look = 1;
  count_pick(*p);
  return staff_searching_locked(p);
}

void ownership::return_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  machine* const lender = p->lender.load(std::memory_order_relaxed);
  WEFT_ASSERT(lender->lent == p && lender->p == nullptr);  // I2
  end_loan_locked(lender);
  lender->is_returned.value_.store(true, std::memory_order_relaxed);  // I4
  hold(lender, p);
  the_counters.loan_returned.add();
}

bool ownership::return_own(machine* m) noexcept {
  const bool searched = end_search(m);
  sched.lock.lock();
  processor* const p = m->p;
  // A thread that made work during this search relied on the search to find it.
  const bool more = p->retiring.load(std::memory_order_relaxed) || !p->woken.empty() ||
                    is_urgent_hint(base::now_ns());
  const bool returns = is_lent(*p) && !more;
  if (returns) {
    lose_locked(m);
    m->last_p.value_ = nullptr;  // the processor belongs to the lender
    return_locked(p);
  }
  sched.lock.unlock();
  if (returns) {
    if (searched) look_for_others();
    tell_monitor_of_timer(earliest_timer_hint());
  }
  return returns;
}

void ownership::end_loan_locked(machine* lender) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(lender->lent->lender.load(std::memory_order_relaxed) == lender);  // I2
  lender->lent->lender.value_.store(nullptr, std::memory_order_relaxed);
  lender->lent.value_ = nullptr;
}

void ownership::end_loan_of_locked(processor& p) noexcept {
  if (machine* const lender = p.lender.load(std::memory_order_relaxed)) end_loan_locked(lender);
}

}  // namespace weft::sched
