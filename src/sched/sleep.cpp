#include "sched/sleep.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/kernel.hpp"
#include "sched/all_timers.hpp"
#include "sched/idle_list.hpp"
#include "sched/keeper.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/order.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/spare.hpp"
#include "sched/wake.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

// A goroutine that is bound to a thread takes its processor there, and back again within
// microseconds if it only answers. So a machine that has just given a processor away waits awake
// for a moment, as long as that pays. To wake a thread takes longer than the whole exchange.
constexpr std::int64_t spin_long_ns = 30'000;   // waking a core that sleeps takes half of it
constexpr std::int64_t spin_short_ns = 15'000;  // after a wait that has not paid
constexpr std::int64_t spin_pause = 256;        // how many waits to leave out after two such

void count_nap(machine* m) noexcept {
  m->naps.store(m->naps.load(std::memory_order_relaxed) + 1, std::memory_order_release);  // [DL1]
}

// Whether to doze before listening.
bool should_doze(const machine* m) noexcept {
  // relaxed, both: hints. If all other processors are idle, work can only come from outside, and
  // such work wakes sleepers.
  const std::uint32_t procs = sched.procs.load(std::memory_order_relaxed);
  if (sched.idle_count.load(std::memory_order_relaxed) + 1 >= procs) return false;
  return !m->dozed || work_waits_hint();
}

// Sleeps in the poller until `until_ns`, an event, or a token. Returns: whether it has got a token.
bool sleep_polling(machine* m, std::int64_t until_ns, goroutine_list& found) noexcept {
  const asleep mark(m);
  const bool token = m->sleep.wait_elsewhere([&] {
    if (until_ns == base::never) return the_poller.poll(until_ns, found);
    const base::timely wake_up;
    the_poller.poll(until_ns, found);
  });
  count_nap(m);
  return token;
}

// Queues what the poller found for any processor.
void share_found(goroutine_list& found) noexcept {
  while (goroutine* const g = found.pop_front()) inject(global_queue::from::woken, g);
}

// Queues what the poller found: here, or in the global queue if the processor is gone. Requires:
// the machine is not in the list of spare ones.
void queue_found(machine* m, goroutine_list& found) noexcept {
  while (goroutine* const g = found.pop_front()) {
    if (m->p != nullptr) {
      push_woken(*m->p, g);
    } else {
      inject(global_queue::from::woken, g);
    }
  }
}

// How a machine is going to sleep with its processor.
struct idle_sleep {
  processor* p;
  bool dozes;
  bool polls = false;  // sleeps in the poller
  std::int64_t doze_ns = 0;
  std::int64_t until_ns = base::never;
};

// Puts the processor into the idle list, and decides whether this machine keeps time and whether it
// polls. Returns: false if the machine has to look again instead.
bool lie_down(machine* m, idle_sleep& s) noexcept {
  processor* const p = s.p;
  const std::lock_guard hold(sched.lock);
  if (p->retiring.load(std::memory_order_relaxed) ||  // resize has marked it, and waits for it
      p->lender.load(std::memory_order_relaxed) != nullptr) {  // borrowed: it has to go back
    return false;
  }
  // These fields belong to the processor; once it is in the list another machine may take it.
  s.doze_ns = p->doze_ns;
  if (s.dozes) {
    p->doze_ns = std::min(p->doze_ns * 2, doze_max_ns);
    p->dozes_until_ns = base::now_ns() + s.doze_ns;
  }
  add_idle_locked(p, s.dozes ? processor::idleness::dozing : processor::idleness::listening);
  (void)end_search(m);
  if (is_keeper_needed_locked()) {
    s.until_ns = earliest_timer_hint();
    sched.keeper = m;
    sched.keeper_until_ns = s.until_ns;
  }
  // poller.hpp, P1
  const bool is_last = sched.idle_count.load(std::memory_order_relaxed) >=
                       sched.procs.load(std::memory_order_relaxed);
  s.polls = (is_last || !the_poller.is_anothers(*p, base::now_ns())) && the_poller.try_attend();
  if (s.polls) {
    sched.polling = m;
    the_poller.note_owner(*p);
  }
  return true;
}

// Returns: whether it has got a token.
bool sleep_as(machine* m, const idle_sleep& s, std::int64_t until_ns,
              goroutine_list& found) noexcept {
  if (s.polls) return sleep_polling(m, until_ns, found);
  if (until_ns == base::never) {
    sleep(m);
    return true;
  }
  const base::timely wake_up;
  return sleep_until(m, until_ns);
}

// Takes the processor out of the idle list again, unless another thread has. Returns: false if the
// processor was taken away for good: the machine is then in the list of spare ones.
bool get_up(machine* m, const idle_sleep& s, bool token) noexcept {
  machine* keeper = nullptr;
  sched.lock.lock();
  if (s.polls) {
    sched.polling = nullptr;
    the_poller.leave();
  }
  if (!token && m->p == s.p && s.p->idle != processor::idleness::busy) {
    remove_idle_locked(s.p);  // I1: no other thread has taken it
    if (sched.keeper == m) sched.keeper = nullptr;
  } else if (m->is_spare) {
    WEFT_ASSERT(!token);
    sched.lock.unlock();
    return false;
  } else {
    if (!token) {
      sched.lock.unlock();
      sleep(m);  // I1: the token is on its way
      sched.lock.lock();
    }
    if (sched.keeper == m) keeper = pass_timekeeping_locked();
  }
  sched.lock.unlock();
  wake(keeper);
  return true;
}

}  // namespace

void sleep(machine* m) noexcept {
  const asleep mark(m);
  m->sleep.wait(&suspect_deadlock);
  count_nap(m);
}

bool sleep_until(machine* m, std::int64_t deadline_ns) noexcept {
  const asleep mark(m);
  const bool token = m->sleep.wait_until(deadline_ns);
  count_nap(m);
  return token;
}

bool spin_for_token(machine* m) noexcept {
  static constinit std::atomic<std::uint32_t> spinners{0};
  if (!std::exchange(m->gave_away, false)) return false;
  if (m->spin_ns < 0) {  // has not paid lately: try again some time later
    ++m->spin_ns;
    return false;
  }
  bool token = false;
  if (spinners.fetch_add(1, std::memory_order_relaxed) <
      sched.cores.load(std::memory_order_relaxed) / 2) {
    const std::int64_t end = base::now_ns() + (m->spin_ns != 0 ? m->spin_ns : spin_long_ns);
    {
      const asleep mark(m);
      do {
        for (int i = 0; i < 16 && !token; ++i) {
          base::pause();
          token = m->sleep.try_wait();
        }
      } while (!token && base::now_ns() < end);
      if (token) count_nap(m);
    }
    const bool was_short = m->spin_ns != 0 && m->spin_ns <= spin_short_ns;
    m->spin_ns = token ? spin_long_ns : was_short ? -spin_pause : spin_short_ns;
  }
  spinners.fetch_sub(1, std::memory_order_relaxed);
  return token;
}

void sleep_for_grant(machine* m, void (*lie_down)()) noexcept {
  if (spin_for_token(m)) return;
  const asleep mark(m);
  m->sleep.wait(lie_down);
  count_nap(m);
}

bool sleep_idle(machine* m) noexcept {
  idle_sleep s{.p = m->p, .dozes = should_doze(m)};
  if (!lie_down(m, s)) return true;
  base::heavy_barrier();  // [W1]
  const std::int64_t now = base::now_ns();
  const bool stay_awake =
      (!s.dozes && work_waits_hint()) || is_anyones_work_hint() || is_urgent_hint(now);
  const std::int64_t until_ns = s.dozes ? std::min(s.until_ns, now + s.doze_ns) : s.until_ns;
  goroutine_list found;
  const bool token = !stay_awake && sleep_as(m, s, until_ns, found);
  m->dozed = s.dozes && !token;
  if (!get_up(m, s, token)) {
    // The processor was taken away during the sleep: the machine sleeps on as a spare one. It may
    // be given another one at any time, and does not know before it has consumed the token.
    share_found(found);
    if (s.polls) attend_poller();
    if (stay_awake) look_for_others();  // this machine was to run the work that its last look saw
    return wait_as_spare(m);
  }
  // While the process exits, the processor may already be the exiting thread's (exit.cpp).
  if (m->p != nullptr && !sched.stopping.load(std::memory_order_relaxed)) {
    m->p->until_look = 1;  // the clock has not been looked at here for a while
  }
  queue_found(m, found);
  note_activity();
  return true;
}

}  // namespace weft::sched
