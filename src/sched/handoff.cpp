// handoff.cpp: how a processor leaves a machine whose goroutine blocks or hogs it, and how that
// goroutine comes back.
//
// One rule: a processor never waits. While a goroutine runs user code its processor can leave it,
// and the goroutine stays on its thread and does not notice until it next enters the runtime. Who
// takes the processor, when and why:
//
//   the machine itself   blocking(f); a goroutine locked to its thread has to wait
//   the monitor          a call blocks, a hog could not be paused, somebody urgent needs it
//   the signal handler   the hog's own thread, after its slice (preempt.cpp)
//   resize               max_procs shrinks
//
// All of them leave the seat's word at `taken`; what happens next is decided under the scheduler's
// lock. A machine with `taken` on its seat is in one of these situations, as `p`, `lent` and
// `is_returned`, which that lock guards, tell:
//
//   p       lent   is_returned
//   null    null   no    it runs without a processor, in a call or computing; or is paused
//   null    set    no    the same, and `lent` comes back to it when nothing urgent is left
//   set     null   yes   it has its processor back, and finds that out at its next entry
//
// Coming back (acquire_processor): the processor that was given back, else the old one if it is
// idle, else any idle one; else the goroutine goes to the global queue and its machine becomes a
// spare one.
//
// Loans. A processor that was lent has no time to lose in either direction. When its borrower has
// nothing to run it gives it back by setting three pointers. The word stays at `taken`, so the
// lender cannot touch the processor without the lock; so the next loan needs no membarrier either.
//
// Invariants:
//   I1  A processor is held by one machine (holder, whose `p` it is), or is idle, starting or
//       retired, or is on its way between these under the lock or a claim.
//   I2  p->lender == m exactly if m->lent == p.
//   I3  A machine's `p` changes only: by itself while inside and not `taken`; by a claimer; under
//       the lock while it is asleep or `taken`.
//
// tests/model/handoff.pml is this in Promela, checked exhaustively.
#include "base/clock.hpp"
#include "sched/counters.hpp"
#include "sched/order.hpp"
#include "sched/scheduler.hpp"

#include <utility>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

// A detached machine may compute for so long before its own timer sees to it.
constexpr std::int64_t grace_cpu_ns = 1'000'000;
// For so long a processor may go from one tied goroutine to the next without a look (order.hpp).
constexpr std::int64_t unlooked_ns = 1'000'000;

// A tied goroutine gets its turn without a look.
void note_turn_of_tied(processor& p, std::int64_t now) noexcept {
  p.clock_ns.store(now, std::memory_order_relaxed);
  p.looked_picks = p.picks.load(std::memory_order_relaxed);
  p.turn_ns = now;
  p.has_pleaded = p.has_taken_child = false;
  p.until_look = 1;
}

machine* staff_searching_locked(processor* p) noexcept {
  if (sched.idle.try_search(processors_max)) return staff_locked(p);
  add_idle_locked(p, processor::idleness::listening);  // the many that search have a last look
  return nullptr;
}

}  // namespace

void return_loan_locked(processor* p) noexcept {
  machine* const lender = p->lender.load(std::memory_order_relaxed);
  p->lender.store(nullptr, std::memory_order_relaxed);
  lender->lent = nullptr;
  lender->p = p;
  lender->is_returned.store(true, std::memory_order_relaxed);
  p->holder.store(lender, std::memory_order_release);
  the_counters.loan_returned.add();
}

namespace {

counter& counter_of(detach_cause why) noexcept {
  switch (why) {
    case detach_cause::call:
      return the_counters.detach_call;
    case detach_cause::blocked:
      return the_counters.detach_blocked;
    case detach_cause::hog:
      return the_counters.detach_hog;
    case detach_cause::loan:
      return the_counters.loan_made;
    case detach_cause::resize:
      break;
  }
  return the_counters.detach_resize;
}

// The processor has left `m`. Requires: the lock. Returns: whom to wake.
machine* after_detach_locked(machine* m, processor& p, detach_cause why) noexcept {
  m->p = nullptr;
  m->last_p = &p;
  // Who lends may have computed for a moment only.
  const std::int64_t slice_ns = sched.slice_ns.load(std::memory_order_relaxed);
  m->turn_until_ns = why == detach_cause::hog    ? 0
                     : why == detach_cause::loan ? m->runs_since_ns + slice_ns
                                                 : base::never;
  p.holder.store(nullptr, std::memory_order_relaxed);  // what comes next publishes it
  if (why != detach_cause::loan || p.retiring.load(std::memory_order_relaxed)) {
    return pass_on_locked(&p);
  }
  end_loan_of_locked(p);
  m->lent = &p;
  p.lender.store(m, std::memory_order_relaxed);
  p.lent_ns = base::now_ns();
  p.until_look = 1;
  count_pick(p);
  return staff_searching_locked(&p);
}

}  // namespace

machine* grant_turn_locked(processor* p, goroutine* g) noexcept {
  while (goroutine* const w = p->woken.pop_front()) {
    sched.global.push(global_queue::from::woken, w);
  }
  count_pick(*p);
  note_turn_of_tied(*p, base::now_ns());
  return grant_locked(p, g);
}

machine* grant_locked(processor* p, goroutine* g) noexcept {
  machine* const to = g->bound;
  // Not to->p: that machine may still be on its way to sleep, with a processor of its own.
  to->handed = g;
  to->handed_p = p;
  p->holder.store(nullptr, std::memory_order_release);
  the_counters.handoff_granted.add();
  return to;
}

machine* pass_on_locked(processor* p) noexcept {
  count_pick(*p);  // who watches it sees that it goes on
  if (p->retiring.load(std::memory_order_relaxed)) {
    retire_locked(*p);
    return nullptr;
  }
  const std::int64_t now = base::now_ns();
  const bool is_urgent = is_urgent_hint(now) || !p->woken.empty();
  const bool is_lent = p->lender.load(std::memory_order_relaxed) != nullptr;
  p->until_look = 1;
  // The next one has a thread of its own: no need to wake another that would hand over to it; but
  // for a look now and then.
  goroutine* const next = p->next.load(std::memory_order_relaxed);
  if (next != nullptr && is_tied(next) && !is_urgent &&
      now - p->clock_ns.load(std::memory_order_relaxed) < unlooked_ns) {
    return grant_locked(p, take_next(*p));
  }
  if (is_lent && !is_urgent) {
    return_loan_locked(p);
    return nullptr;
  }
  if (!is_urgent && !has_work(*p) && sched.global.first_is_tied() &&
      sched.global.since_hint(global_queue::from::shared) <=
          sched.global.since_hint(global_queue::from::overflow)) {
    goroutine* const g = sched.global.take_one(global_queue::from::shared);
    if (g != nullptr && is_tied(g)) return grant_turn_locked(p, g);
    if (g != nullptr) push(*p, p->ready, g);  // another processor took the tied one first
  }
  if (is_urgent || others_want(*p)) return staff_searching_locked(p);
  add_idle_locked(p, processor::idleness::listening);
  return nullptr;
}

void end_loan_locked(machine* lender) noexcept {
  lender->lent->lender.store(nullptr, std::memory_order_relaxed);
  lender->lent = nullptr;
}

void end_loan_of_locked(processor& p) noexcept {
  if (machine* const lender = p.lender.load(std::memory_order_relaxed)) end_loan_locked(lender);
}

namespace {

// A thief's question does not keep the processor from leaving: the thief is told that there is
// nothing.
bool claim_from(machine* owner, seat::word_kind otherwise) noexcept {
  if (owner->seat.claim(claim_turns, otherwise)) return true;
  const std::uint32_t question = owner->seat.accept_for_owner();
  if (question == seat::free) return false;
  turn_away(seat::thief_of(question));
  return owner->seat.claim(claim_turns, otherwise);
}

}  // namespace

bool retake(processor& p, detach_cause why, const seen_turn* seen) noexcept {
  machine* const owner = p.holder.load(std::memory_order_acquire);
  if (owner == nullptr || sched.stopping.load(std::memory_order_relaxed)) return false;
  if (seen != nullptr && seen->holder != owner) return false;
  // A hint until the seat is claimed, or the lock held.
  const auto has_moved = [&] {
    return seen != nullptr && seen->picks != p.picks.load(std::memory_order_relaxed);
  };
  if (has_moved()) return false;
  sched.lock.lock();
  const bool was_returned = owner->is_returned.load(std::memory_order_relaxed) && owner->p == &p;
  if (was_returned) {
    if (has_moved()) {
      sched.lock.unlock();
      return false;
    }
    owner->is_returned.store(false, std::memory_order_relaxed);
  } else {
    sched.lock.unlock();
    // Nobody waits for a seat with the lock, so a claimer may wait for the lock.
    const bool asks = why == detach_cause::hog || why == detach_cause::loan;
    if (!claim_from(owner, asks ? seat::yield_please : seat::free)) {
      the_counters.detach_failed.add();
      return false;
    }
    sched.lock.lock();
    // When the process ends, under the lock, whoever ends it keeps its processor.
    if (owner->p != &p || has_moved() || sched.stopping.load(std::memory_order_relaxed)) {
      sched.lock.unlock();
      owner->seat.release();
      the_counters.detach_failed.add();
      return false;
    }
  }
  machine* const woken = after_detach_locked(owner, p, why);
  if (!was_returned) owner->seat.take();
  const departure left = after_passing_locked(p, woken);
  sched.lock.unlock();
  if (was_returned && why == detach_cause::loan) {
    the_counters.loan_repeated.add();
  } else {
    counter_of(why).add();
  }
  left.finish();
  if (why != detach_cause::loan) arm_cpu_timer(owner, grace_cpu_ns);
  return true;
}

bool give_back_loan(machine* m) noexcept {
  processor* const p = m->p;
  const bool searched = end_search(m);
  sched.lock.lock();
  // Somebody who made work while this search was on relied on it.
  const bool more = p->retiring.load(std::memory_order_relaxed) || !p->woken.empty() ||
                    is_urgent_hint(base::now_ns());
  const bool returns = p->lender.load(std::memory_order_relaxed) != nullptr && !more;
  if (returns) {
    m->p = nullptr;
    m->last_p = nullptr;  // it is not this one's
    return_loan_locked(p);
  }
  sched.lock.unlock();
  if (returns) {
    if (searched) look_for_others();
    tell_monitor_of_timer(earliest_timer_hint());
  }
  return returns;
}

bool acquire_locked(machine* m, machine*& to_wake) noexcept {
  if (m->is_returned.load(std::memory_order_relaxed)) {
    m->is_returned.store(false, std::memory_order_relaxed);
    m->seat.reclaim();
    the_counters.return_loan.add();
    return true;
  }
  if (m->lent != nullptr) end_loan_locked(m);
  processor* p = m->last_p;
  if (p == nullptr || p->idle == processor::idleness::busy) p = sched.idle_head;
  if (p != nullptr) {
    remove_idle_locked(p);
    to_wake = dismiss_sleeper_locked(p);
  } else {
    p = take_starting_locked();  // here is a thread for it
    if (p == nullptr) return false;
    sched.idle.end_search();
  }
  (p == m->last_p ? the_counters.return_same : the_counters.return_other).add();
  m->p = p;
  p->holder.store(m, std::memory_order_release);
  m->seat.reclaim();
  return true;
}

bool acquire_processor(machine* m) noexcept {
  machine* woken = nullptr;
  sched.lock.lock();
  const bool has = acquire_locked(m, woken);
  sched.lock.unlock();
  wake(woken);
  if (has) {
    note_activity();  // the monitor's [J1]
  } else {
    the_counters.return_queued.add();
  }
  return has;
}

goroutine* await_grant(machine* m, void (*lie_down)()) noexcept {
  sleep_for_grant(m, lie_down);
  goroutine* const g = m->handed;
  if (g == nullptr) return nullptr;
  m->handed = nullptr;
  m->p = m->handed_p;
  m->seat.reclaim();
  m->p->holder.store(m, std::memory_order_release);
  if (std::exchange(m->has_to_yield, false)) (void)m->seat.ask_to_yield();
  return g;
}

std::uint32_t settle_here(machine* m, bool* pleaded) noexcept {
  for (;;) {
    const std::uint32_t word = m->seat.settle();
    switch (seat::kind_of(word)) {
      case seat::asked:
        if (m->seat.accept(word)) hand_over(m, seat::thief_of(word));
        break;
      case seat::yield_please:
        if (m->seat.accept(word) && pleaded != nullptr) *pleaded = true;
        break;
      default:
        return word;
    }
  }
}

bool give_up_seat(machine* m, bool* pleaded) noexcept {
  for (;;) {
    const std::uint32_t word = settle_here(m, pleaded);
    if (word == seat::stopped) return false;
    if (word == seat::taken || m->seat.give_up()) return true;
  }
}

}  // namespace weft::sched

namespace weft::detail {

using namespace weft::sched;

void begin_blocking() noexcept {
  machine* m = this_machine();
  // When the process ends nobody else runs; the processor would not come back.
  if (m == nullptr || sched::the_scheduler.stopping.load(std::memory_order_relaxed)) return;
  m = enter(m);
  if (!give_up_seat(m)) stop_here();
  m->g->set_status(state::blocking);
  the_counters.handoff_blocking.add();
  release_processor(m);
  leave(m);
}

void end_blocking() noexcept {
  machine* const m = this_machine();
  if (m != nullptr) leave(enter(m));
}

}  // namespace weft::detail
