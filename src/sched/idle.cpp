// idle.cpp: how a machine without work goes to sleep, and how it is woken.
//
// A processor without work passes through these stages:
//
//   searching   its machine looks for work, for 5 to 40 us (find.cpp)
//   dozing      the machine sleeps for 50 us, doubling to 2 ms; nobody wakes it for ordinary work,
//               and then it searches once more. This is what limits the rate of wake-ups: a
//               producer that makes work every few nanoseconds would otherwise pay for a system
//               call each time.
//   listening   nothing waited anywhere at the end of the doze: it sleeps until it is woken. The
//               producer's side is work_made(); idle_state.hpp has the protocol, [W1].
//
// While something waits that nobody found worth stealing the processor keeps dozing instead of
// listening, so that it looks again within 2 ms. No work is lost: what waits is seen by a search in
// progress, by a doze that ends, or by the producer, who sees that somebody listens.
//
// What belongs to no processor (the global queue but for its overflow; timers) wakes a dozing
// processor, too.
//
// The machine sleeps together with its processor, so that it goes on where it was, on a warm core.
// Its processor may be taken from it while it sleeps, by a goroutine that comes back from a
// blocking call; then it becomes a spare machine. Idle and spare lists are guarded by the
// scheduler's lock:
//
//   I1  A processor is in the idle list exactly if its `idle` is not busy.
//   I2  A machine that sleeps in sleep_idle is woken (its parker given a token) only by whoever
//       took its processor out of the idle list on its behalf; so on a timeout it looks under the
//       lock whether it is still listed, and if not, a token is coming and it waits for that.
//   I3  If timers are pending and all machines sleep, one of them, the keeper, sleeps until the
//       earliest. A machine that goes to sleep when a timer is due before the keeper would wake
//       becomes the keeper instead. One that gets other work to do wakes another machine to keep
//       time, if there is one; busy machines look at their own timers.
//   I4  A spare machine is in the spare list; whoever takes it out gives it a processor and a
//       token.
#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/interrupt.hpp"
#include "base/kernel.hpp"
#include "sched/order.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace weft::sched {
namespace {

// A thread without a processor stays for so long when there are more than a few.
constexpr std::int64_t spare_life_ns = 5'000'000'000;
constexpr std::uint32_t spare_kept = 4;

scheduler& sched = the_scheduler;

void add_spare_locked(machine* m) noexcept {
  WEFT_ASSERT(!m->is_spare);
  m->is_spare = true;
  m->spare_previous = nullptr;
  m->spare_next = sched.spare_head;
  if (sched.spare_head != nullptr) sched.spare_head->spare_previous = m;
  sched.spare_head = m;
  ++sched.spare_count;
}

void remove_spare_locked(machine* m) noexcept {
  WEFT_ASSERT(m->is_spare);
  m->is_spare = false;
  (m->spare_previous != nullptr ? m->spare_previous->spare_next : sched.spare_head) = m->spare_next;
  if (m->spare_next != nullptr) m->spare_next->spare_previous = m->spare_previous;
  --sched.spare_count;
}

// Best one with a thread that does nothing else; else the one whose machine attends to the poller;
// else one for which a thread has to be made.
processor* find_idle_locked(processor::idleness how) noexcept {
  processor* polling = nullptr;
  processor* without_thread = nullptr;
  for (processor* p = sched.idle_head; p != nullptr; p = p->idle_next) {
    if (p->idle != how) continue;
    const machine* const holder = p->holder.load(std::memory_order_relaxed);
    if (holder == nullptr && sched.spare_head == nullptr) {
      without_thread = p;
    } else if (holder != nullptr && holder == sched.polling) {
      polling = p;
    } else {
      return p;
    }
  }
  return polling != nullptr ? polling : without_thread;
}

// Takes an idle processor for a search that is counted already. Returns: whom to wake.
machine* rouse_locked(processor* p) noexcept {
  remove_idle_locked(p);
  return staff_locked(p);
}

// `of`: where work has waited for so long, or null.
void tell(machine* m, processor* of, std::int64_t waited_ns) noexcept {
  m->told_of = of;
  m->told_waited_ns = waited_ns;
  m->told_picks = m->told_of != nullptr ? m->told_of->picks.load(std::memory_order_relaxed) : 0;
}

// I3: whether a timer is due before anybody would wake up for it.
bool timekeeping_needed_locked() noexcept {
  const std::int64_t earliest = earliest_timer_hint();
  return earliest != base::never && (sched.keeper == nullptr || earliest < sched.keeper_until_ns);
}

// I3: the keeper has got something else to do, or there is none. Returns: whom to wake, or null.
machine* pass_timekeeping_locked() noexcept {
  sched.keeper = nullptr;
  if (earliest_timer_hint() == base::never) return nullptr;
  processor* p = find_idle_locked(processor::idleness::listening);
  if (p == nullptr && sched.spare_head != nullptr) p = find_idle_locked(processor::idleness::numb);
  if (p == nullptr || !sched.idle.try_search(processors_max)) return nullptr;
  return rouse_locked(p);
}

// A processor that waits for a thread, in vain or not. A search is counted for it.
processor* take_waiting_locked() noexcept {
  if (processor* const p = take_starting_locked()) return p;
  processor* const p = find_idle_locked(processor::idleness::numb);
  if (p == nullptr || !sched.idle.try_search(processors_max)) return nullptr;
  remove_idle_locked(p);
  return p;
}

void hold_locked(machine* m, processor* p) noexcept {
  m->p = p;
  m->searching = true;
  p->holder.store(m, std::memory_order_release);
}

}  // namespace

machine* keep_time_locked() noexcept {
  return timekeeping_needed_locked() ? pass_timekeeping_locked() : nullptr;
}

departure after_passing_locked(const processor& p, machine* woken) noexcept {
  const bool is_idle = p.idle != processor::idleness::busy;
  return {.woken = woken, .keeper = keep_time_locked(), .is_idle = is_idle};
}

void departure::finish() const noexcept {
  wake(woken);
  wake(keeper);
  if (is_idle) look_for_others();
}

void look_for_others() noexcept {
  base::heavy_barrier();  // [W1]
  if (work_waits_hint() || is_urgent_hint(base::now_ns())) wake_somebody();
  attend_poller();  // poller.hpp, P1
}

void add_idle_locked(processor* p, processor::idleness how) noexcept {
  WEFT_ASSERT(p->idle == processor::idleness::busy);
  p->idle = how;
  p->idle_previous = nullptr;
  p->idle_next = sched.idle_head;
  if (sched.idle_head != nullptr) sched.idle_head->idle_previous = p;
  sched.idle_head = p;
  // relaxed: written under the lock.
  sched.idle_count.store(sched.idle_count.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  if (how == processor::idleness::listening) sched.idle.start_listening();
  if (how == processor::idleness::numb) sched.numb_count.fetch_add(1, std::memory_order_relaxed);
}

void remove_idle_locked(processor* p) noexcept {
  WEFT_ASSERT(p->idle != processor::idleness::busy);
  if (p->idle == processor::idleness::listening) sched.idle.stop_listening();
  if (p->idle == processor::idleness::numb) {
    sched.numb_count.fetch_sub(1, std::memory_order_relaxed);
  }
  p->idle = processor::idleness::busy;
  (p->idle_previous != nullptr ? p->idle_previous->idle_next : sched.idle_head) = p->idle_next;
  if (p->idle_next != nullptr) p->idle_next->idle_previous = p->idle_previous;
  sched.idle_count.store(sched.idle_count.load(std::memory_order_relaxed) - 1,
                         std::memory_order_relaxed);
}

machine* dismiss_sleeper_locked(processor* p) noexcept {
  machine* const sleeper = p->holder.load(std::memory_order_relaxed);
  if (sleeper == nullptr) return nullptr;
  p->holder.store(nullptr, std::memory_order_release);
  sleeper->p = nullptr;
  if (processor* const other = take_waiting_locked()) {
    hold_locked(sleeper, other);
    return sleeper;
  }
  add_spare_locked(sleeper);  // asleep already
  return sched.keeper == sleeper ? pass_timekeeping_locked() : nullptr;
}

namespace {

void ask_for_thread_locked() noexcept {
  sched.starter_word.fetch_add(1, std::memory_order_release);
  base::futex_wake(sched.starter_word, 1);
}

}  // namespace

machine* staff_locked(processor* p) noexcept {
  machine* m = p->holder.load(std::memory_order_relaxed);  // written under the lock while idle
  if (m == nullptr) {
    sched.needs_reserve = true;
    m = sched.spare_head;
    if (m != nullptr) remove_spare_locked(m);
    if (sched.spare_count < spare_reserve) ask_for_thread_locked();
  }
  if (m != nullptr) {
    hold_locked(m, p);
    return m;
  }
  if (!sched.has_starter || is_refused_threads()) {
    sched.idle.end_search();
    return idle_without_thread_locked(p);
  }
  processor** last = &sched.starting;  // first come, first served
  while (*last != nullptr) last = &(*last)->idle_next;
  *last = p;
  p->idle_next = nullptr;
  if (sched.starting_count++ == 0) {
    sched.starting_since_ns.store(base::now_ns(), std::memory_order_relaxed);
  }
  ask_for_thread_locked();
  note_activity();  // if the thread does not come, the monitor sees to that
  return nullptr;
}

bool has_thread_locked() noexcept {
  if (sched.spare_count != 0) return true;
  return sched.has_starter && sched.machines < machines_max - spare_reserve &&
         !is_refused_threads();
}

bool has_thread_hint() noexcept {
  const std::lock_guard hold(sched.lock);
  return has_thread_locked();
}

bool has_spare_locked() noexcept { return sched.spare_count != 0 || !is_refused_threads(); }

bool has_spare_hint() noexcept {
  const std::lock_guard hold(sched.lock);
  return has_spare_locked();
}

bool remove_starting_locked(processor* p) noexcept {
  for (processor** link = &sched.starting; *link != nullptr; link = &(*link)->idle_next) {
    if (*link != p) continue;
    *link = p->idle_next;
    if (--sched.starting_count == 0) {
      sched.starting_since_ns.store(base::never, std::memory_order_relaxed);
    }
    return true;
  }
  return false;
}

processor* take_starting_locked() noexcept {
  processor* const p = sched.starting;
  if (p != nullptr) remove_starting_locked(p);
  return p;
}

machine* rescue_starting_locked() noexcept {
  processor* const p = take_starting_locked();
  if (p == nullptr) return nullptr;
  sched.idle.end_search();
  drain(*p);  // it may be what waits here that has a thread; the rest is for others
  count_pick(*p);
  return idle_without_thread_locked(p);
}

machine* idle_without_thread_locked(processor* p) noexcept {
  if (p->lender.load(std::memory_order_relaxed) != nullptr) {
    return_loan_locked(p);
    return nullptr;
  }
  if (goroutine* const g = sched.global.take_tied()) return grant_locked(p, g);
  // One that came while there seemed to be none.
  if (sched.spare_head != nullptr && sched.idle.try_search(processors_max)) return staff_locked(p);
  drain(*p);  // no machine looks into the queues of a processor without a holder
  add_idle_locked(p, processor::idleness::numb);
  return nullptr;
}

void wake_one(machine* m) noexcept {
  while (sched.idle.begin_wake()) {
    sched.lock.lock();
    processor* const p = find_idle_locked(processor::idleness::listening);
    machine* const woken = p != nullptr ? rouse_locked(p) : nullptr;
    if (woken != nullptr) tell(woken, m != nullptr ? m->p : nullptr, 0);
    // Somebody else took it meanwhile. Under the lock, so that nobody lies down between: who made
    // work while this search seemed to be on relied on it, so look whether the duty is there again.
    if (p == nullptr) sched.idle.end_search();
    const bool monitor = p == nullptr && stop_monitor_listening_locked();
    sched.lock.unlock();
    wake(woken);
    if (monitor) poke_monitor();
    if (p != nullptr) return;
  }
}

void wake_somebody(processor* of, std::int64_t waited_ns) noexcept {
  base::light_barrier();  // [W1]
  // Whoever searches has its last look still to come (idle_state.hpp, I2).
  if (sched.idle.searching_hint() != 0) return;
  sched.lock.lock();
  processor* p = find_idle_locked(processor::idleness::listening);
  if (p == nullptr) p = find_idle_locked(processor::idleness::dozing);
  if (p == nullptr) p = find_idle_locked(processor::idleness::numb);
  machine* woken = nullptr;
  if (p != nullptr && sched.idle.try_search(processors_max)) woken = rouse_locked(p);
  if (woken != nullptr) tell(woken, of, waited_ns);
  const bool monitor = p == nullptr && stop_monitor_listening_locked();
  sched.lock.unlock();
  wake(woken);
  if (monitor) poke_monitor();
}

void inject(global_queue::from lane, goroutine* g) noexcept {
  g->since_ns = base::now_ns();
  sched.global.push(lane, g);
  wake_somebody();
}

namespace {

// A goroutine that is tied to a thread takes its processor there and back again within
// microseconds, if all it does is answer. Who has just given a processor away waits awake for a
// moment, as long as that pays; waking a thread takes longer than the whole.
constexpr std::int64_t spin_long_ns = 30'000;   // waking a core that sleeps takes half of it
constexpr std::int64_t spin_short_ns = 15'000;  // after one that has not paid
constexpr std::int64_t spin_pause = 256;        // turns to leave out after two

// Returns: whether it has got a token.
bool spin_for_token(machine* m) noexcept {
  static constinit std::atomic<std::uint32_t> spinners{0};
  if (!std::exchange(m->gave_away, false)) return false;
  if (m->spin_ns < 0) {  // has not paid lately: try again some time
    ++m->spin_ns;
    return false;
  }
  bool token = false;
  if (spinners.fetch_add(1, std::memory_order_relaxed) <
      sched.cores.load(std::memory_order_relaxed) / 2) {
    const std::int64_t end = base::now_ns() + (m->spin_ns != 0 ? m->spin_ns : spin_long_ns);
    m->is_asleep.store(true, std::memory_order_release);  // nobody need wait for it
    do {
      for (int i = 0; i < 16 && !token; ++i) {
        base::pause();
        token = m->sleep.try_wait();
      }
    } while (!token && base::now_ns() < end);
    if (token) count_nap(m);
    m->is_asleep.store(false, std::memory_order_release);
    const bool was_short = m->spin_ns != 0 && m->spin_ns <= spin_short_ns;
    m->spin_ns = token ? spin_long_ns : was_short ? -spin_pause : spin_short_ns;
  }
  spinners.fetch_sub(1, std::memory_order_relaxed);
  return token;
}

// Sleeps as a machine in the spare list. Returns: false if it has been taken out to end.
bool wait_as_spare(machine* m) noexcept {
  for (;;) {
    sched.lock.lock();
    const bool surplus = sched.spare_count > spare_kept;
    sched.lock.unlock();
    if (spin_for_token(m)) break;  // I4
    if (!surplus) {
      sleep(m);
      break;  // I4
    }
    if (sleep_until(m, base::now_ns() + spare_life_ns)) break;  // I4
    sched.lock.lock();
    if (!m->is_spare) {
      sched.lock.unlock();
      sleep(m);  // I4: the token is on its way
      break;
    }
    if (sched.spare_count > spare_kept) {
      remove_spare_locked(m);
      sched.lock.unlock();
      return false;
    }
    sched.lock.unlock();
  }
  m->seat.reclaim();
  m->seat.forget_plea();
  note_activity();
  return true;
}

// Whether to doze before listening.
bool should_doze(const machine* m) noexcept {
  // relaxed, both: hints. With nobody else at work nothing can appear but from outside, and that
  // wakes whoever sleeps.
  const std::uint32_t procs = sched.procs.load(std::memory_order_relaxed);
  if (sched.idle_count.load(std::memory_order_relaxed) + 1 >= procs) return false;
  return !m->dozed || work_waits_hint();
}

// Sleeps in the poller until `until_ns`, an event, or a token. Returns: whether it has got a token.
bool sleep_in_poller(machine* m, std::int64_t until_ns, goroutine_list& found) noexcept {
  m->is_asleep.store(true, std::memory_order_release);
  const bool token = m->sleep.wait_elsewhere([&] {
    if (until_ns == base::never) return the_poller.poll(until_ns, found);
    const base::timely wake_up;
    the_poller.poll(until_ns, found);
  });
  count_nap(m);
  m->is_asleep.store(false, std::memory_order_release);
  return token;
}

// Queues what the poller found: here, or for others if the processor is gone.
void queue_found(machine* m, goroutine_list& found) noexcept {
  while (goroutine* const g = found.pop_front()) {
    if (m->p != nullptr) {
      push_woken(*m->p, g);
    } else {
      inject(global_queue::from::woken, g);
    }
  }
}

}  // namespace

void sleep_for_grant(machine* m, void (*lie_down)()) noexcept {
  if (spin_for_token(m)) return;
  m->is_asleep.store(true, std::memory_order_release);
  m->sleep.wait(lie_down);
  count_nap(m);
  m->is_asleep.store(false, std::memory_order_release);
}

bool sleep_idle(machine* m) noexcept {
  processor* const p = m->p;
  const bool doze = should_doze(m);
  std::int64_t until = base::never;

  sched.lock.lock();
  if (p->retiring.load(std::memory_order_relaxed) ||  // resize, which waits for it, has marked it
      p->lender.load(std::memory_order_relaxed) != nullptr) {  // not its own to sleep with
    sched.lock.unlock();
    return true;
  }
  // What belongs to the processor is touched before it can be somebody else's.
  const std::int64_t doze_ns = p->doze_ns;
  if (doze) {
    p->doze_ns = std::min(p->doze_ns * 2, doze_max_ns);
    p->dozes_until_ns = base::now_ns() + doze_ns;
  }
  add_idle_locked(p, doze ? processor::idleness::dozing : processor::idleness::listening);
  (void)end_search(m);
  if (timekeeping_needed_locked()) {
    until = earliest_timer_hint();
    sched.keeper = m;
    sched.keeper_until_ns = until;
  }
  // poller.hpp, P1
  const bool is_last = sched.idle_count.load(std::memory_order_relaxed) >=
                       sched.procs.load(std::memory_order_relaxed);
  const bool polls =
      (is_last || !the_poller.is_anothers(*p, base::now_ns())) && the_poller.try_attend();
  if (polls) {
    sched.polling = m;
    the_poller.note_owner(*p);
  }
  sched.lock.unlock();

  base::heavy_barrier();  // [W1]
  const std::int64_t now = base::now_ns();
  const bool stay_awake =
      (!doze && work_waits_hint()) || is_anyones_work_hint() || is_urgent_hint(now);
  if (doze) until = std::min(until, now + doze_ns);
  bool token = false;
  goroutine_list found;
  if (!stay_awake) {
    if (polls) {
      token = sleep_in_poller(m, until, found);
    } else if (until == base::never) {
      sleep(m);
      token = true;
    } else {
      const base::timely wake_up;
      token = sleep_until(m, until);
    }
  }
  m->dozed = doze && !token;

  machine* keeper = nullptr;
  sched.lock.lock();
  if (polls) {
    sched.polling = nullptr;
    the_poller.leave();
  }
  if (!token && m->p == p && p->idle != processor::idleness::busy) {
    remove_idle_locked(p);  // I2: nobody has taken it
    if (sched.keeper == m) sched.keeper = nullptr;
  } else if (m->is_spare) {
    // Its processor was taken away while it slept: it goes on sleeping as a spare machine.
    WEFT_ASSERT(!token);
    sched.lock.unlock();
    queue_found(m, found);
    if (polls) attend_poller();
    if (stay_awake) look_for_others();  // what the last look saw was this one's to run
    return wait_as_spare(m);
  } else {
    if (!token) {
      sched.lock.unlock();
      sleep(m);  // I2: the token is on its way
      sched.lock.lock();
    }
    if (sched.keeper == m) keeper = pass_timekeeping_locked();
  }
  sched.lock.unlock();
  wake(keeper);
  // While the process exits the processor may be the exiting thread's by now (exit.cpp).
  if (m->p != nullptr && !sched.stopping.load(std::memory_order_relaxed)) {
    m->p->until_look = 1;  // it has not looked at the clock for a while
  }
  queue_found(m, found);
  note_activity();
  return true;
}

bool sleep_spare(machine* m) noexcept {
  sched.lock.lock();
  WEFT_ASSERT(m->p == nullptr && !m->is_spare);
  const bool searched = end_search(m);
  processor* const p = take_waiting_locked();
  if (p != nullptr) {
    hold_locked(m, p);
  } else {
    add_spare_locked(m);
  }
  sched.lock.unlock();
  if (p == nullptr) {
    if (searched) {
      look_for_others();
    } else {
      attend_poller();  // poller.hpp, P1
    }
    return wait_as_spare(m);
  }
  m->seat.reclaim();
  m->seat.forget_plea();
  note_activity();
  return true;
}

void release_processor(machine* m) noexcept {
  sched.lock.lock();
  // Given up in user code, it may have been lent and given back since.
  if (m->lent != nullptr) end_loan_locked(m);
  m->is_returned.store(false, std::memory_order_relaxed);
  processor* const p = m->p;
  if (p == nullptr) {
    sched.lock.unlock();
    return;
  }
  m->p = nullptr;
  m->last_p = p;
  m->turn_until_ns = base::never;
  const bool searched = end_search(m);
  p->holder.store(nullptr, std::memory_order_release);
  departure left = after_passing_locked(*p, pass_on_locked(p));
  sched.lock.unlock();
  m->gave_away = left.woken != nullptr;
  left.is_idle |= searched;
  left.finish();
}

void give_processor(machine* m, goroutine* g) noexcept {
  sched.lock.lock();
  processor* const p = m->p;
  const bool searched = end_search(m);
  m->p = nullptr;
  m->last_p = p;
  count_pick(*p);
  machine* const to = grant_locked(p, g);
  machine* const keeper = keep_time_locked();
  sched.lock.unlock();
  m->gave_away = true;
  wake(to);
  wake(keeper);
  if (searched) look_for_others();
}

void attend_poller() noexcept {
  // Whoever lay down before the caller had the lock, which it has had, is seen to have left.
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

void dismiss_keeper() noexcept {
  machine* woken = nullptr;
  machine* poller = nullptr;
  sched.lock.lock();
  processor* const p = sched.keeper != nullptr ? sched.keeper->p : nullptr;
  if (p != nullptr && p->idle != processor::idleness::busy &&
      earliest_timer_hint() == base::never && sched.idle.try_search(processors_max)) {
    woken = rouse_locked(p);
  }
  processor* const q = sched.polling != nullptr ? sched.polling->p : nullptr;
  if (q != nullptr && q->idle != processor::idleness::busy && !the_poller.is_waited_for() &&
      sched.idle.try_search(processors_max)) {
    poller = rouse_locked(q);
  } else if (sched.polling != nullptr && q == nullptr && !the_poller.is_waited_for()) {
    base::interrupt_poller();  // a spare machine: goes to sleep among the others
  }
  sched.lock.unlock();
  wake(woken);
  wake(poller);
}

void keep_time() noexcept {
  if (this_simulation() != nullptr) return;
  sched.lock.lock();
  machine* const keeper = keep_time_locked();
  sched.lock.unlock();
  wake(keeper);
}

}  // namespace weft::sched
