// monitor.cpp: a thread without a processor that looks after all the others.
//
// It looks at every processor (watch.hpp) every 20 us, and if there has been nothing to do for a
// millisecond ever more rarely. A millisecond of looks that found nothing to do is halved the next
// time: a server that waits for its clients again and again would pay for it each time.
//
//   up to 0.5 ms  while processors pick goroutines: one of these may block the next moment. One
//                 that computes for longer is looked at every millisecond or two
//   from 0.1 ms   after a loan, which is given back before long
//   up to 2 ms    the same, if nothing had to be done for a tenth of a second; 5 ms after a second.
//                 A look costs some 20 us of CPU time, most of it for waking up
//   up to 10 ms   while each computes away and nobody else wants to run. The monitor listens
//                 meanwhile like an idle processor (idle_state.hpp): who makes work wakes it
//   until woken   while all processors are idle (after some 2 ms)
//
// While no processor picks, nobody looks at the timers: then it wakes when the next one is due. And
// nobody looks after the poller: if no machine sleeps there the monitor does, or, when it is about
// to be gone for short, looks in passing.
//
// Once a second, while goroutines run: it gives the pages of stacks that have long been idle back
// to the system, lets max_procs() follow the CPU limit, and tries again to find threads for
// processors that the kernel refused one.
//
// When a thread has lain down for good while weft::run is on, the monitor looks 10 ms later whether
// anybody is left who could run (deadlock.cpp), and then ever more rarely while all are idle.
#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "base/interrupt.hpp"
#include "base/kernel.hpp"
#include "sched/idle_watch.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/watch.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <sys/prctl.h>
#include <utility>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

constexpr std::int64_t round_ns = 1'000'000'000;
constexpr std::int64_t stack_idle_ns = 1'000'000'000;
constexpr int quiet_rounds_max = 3;
constexpr std::int64_t retry_ns = 10'000'000;

constexpr std::int64_t period_min_ns = 20'000;
constexpr std::int64_t period_lent_ns = 100'000;
constexpr std::int64_t period_busy_ns = 500'000;
constexpr std::int64_t period_smooth_ns = 2'000'000;
constexpr std::int64_t smooth_after_ns = 100'000'000;
constexpr std::int64_t period_steady_ns = 5'000'000;
constexpr std::int64_t steady_after_ns = 1'000'000'000;
constexpr std::int64_t period_calm_ns = 10'000'000;
constexpr int eager_looks_max = 50;
constexpr std::int64_t own_slice_ns = 100'000;
constexpr std::int64_t unattended_ns = 200'000;
constexpr std::int64_t timer_slack_ns = 50'000;

// poked: to look at once.
enum : std::uint32_t { awake, poked, deep_sleep, in_poller };

void give_back_stacks() noexcept {
  while (stack::central().give_back(base::now_ns(), stack_idle_ns) >= stack::pool::give_back_max) {
    base::yield_thread();
  }
}

void retry_numb_processors() noexcept {
  sched.lock.lock();
  for (processor* p = sched.idle_head; p != nullptr; p = p->idle_next) {
    if (p->idle != processor::idleness::numb) continue;
    p->idle = processor::idleness::listening;
    sched.numb_count.fetch_sub(1, std::memory_order_relaxed);
    sched.idle.start_listening();
  }
  sched.lock.unlock();
  base::heavy_barrier();  // [W1]
  if (sched.idle.should_wake() && work_waits_hint()) wake_somebody();
  keep_time();
}

// Those without a thread may have work waiting, or timers.
bool all_idle_hint() noexcept {
  return sched.idle_count.load(std::memory_order_relaxed) >=
             sched.procs.load(std::memory_order_relaxed) &&
         sched.numb_count.load(std::memory_order_relaxed) == 0;
}

std::uint64_t all_picks_hint() noexcept {
  std::uint64_t picks = 0;
  const std::uint32_t made = sched.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < made; ++i) {
    picks +=
        sched.processors[i].load(std::memory_order_relaxed)->picks.load(std::memory_order_relaxed);
  }
  return picks;
}

// Until `deadline_ns`, or until poked.
void sleep_lightly(std::int64_t deadline_ns) noexcept {
  while (sched.monitor_word.load(std::memory_order_acquire) == awake &&
         base::now_ns() < deadline_ns) {
    base::futex_wait_until(sched.monitor_word, awake, deadline_ns);
  }
}

void poll_until(std::int64_t deadline_ns) noexcept {
  goroutine_list found;
  the_poller.poll(deadline_ns, found);
  the_poller.leave();
  while (goroutine* const g = found.pop_front()) inject(global_queue::from::woken, g);
}

// The same as sleep_lightly, in the poller. Requires: attends.
void sleep_in_poller(std::int64_t deadline_ns) noexcept {
  std::uint32_t word = awake;
  const bool sleeps = sched.monitor_word.compare_exchange_strong(
      word, in_poller, std::memory_order_acq_rel, std::memory_order_relaxed);
  poll_until(sleeps ? deadline_ns : 0);
  word = in_poller;
  sched.monitor_word.compare_exchange_strong(word, awake, std::memory_order_relaxed);
}

// Nobody has looked at the poller for a while. Who sleeps with a processor does that better.
void look_at_poller(std::int64_t now_ns) noexcept {
  if (now_ns - the_poller.last_poll_ns() < unattended_ns || !the_poller.try_attend()) return;
  poll_until(0);
  attend_poller();
}

// Until a machine wakes up, until poked, or until `deadline_ns`.
void sleep_deeply(std::int64_t deadline_ns) noexcept {
  std::uint32_t word = awake;
  if (!sched.monitor_word.compare_exchange_strong(word, deep_sleep,
                                                  std::memory_order_seq_cst)) {  // [J1]
    return;
  }
  // A machine that woke up meanwhile saw no deep sleep; it is no longer in the idle list.
  while (all_idle_hint() && sched.monitor_word.load(std::memory_order_seq_cst) == deep_sleep &&
         base::now_ns() < deadline_ns) {
    base::futex_wait_until(sched.monitor_word, deep_sleep, deadline_ns);
  }
  word = deep_sleep;
  sched.monitor_word.compare_exchange_strong(word, awake, std::memory_order_relaxed);
}

// When to look for a deadlock: first_ns after a suspicion, then after twice the time each, while
// everybody is idle.
class deadlock_watch {
 public:
  // Returns: when the next look is due.
  std::int64_t note_suspicion(std::int64_t now_ns) noexcept {
    if (!noted_ && sched.suspicious.load(std::memory_order_acquire)) {
      noted_ = true;
      wait_ns_ = first_ns;
      due_ns_ = std::min(due_ns_, now_ns + wait_ns_);
    }
    return due_ns_;
  }
  void look(std::int64_t now_ns) noexcept {
    // Whoever lies down from now on tells again; until now nobody had to.
    if (noted_) sched.suspicious.store(false, std::memory_order_seq_cst);
    noted_ = false;
    due_ns_ = base::never;
    if (!looks_deadlocked()) return;
    if (is_deadlocked()) base::fatal("all goroutines are asleep - deadlock!");
    dismiss_keeper();
    wait_ns_ = std::min(wait_ns_ * 2, most_ns);
    due_ns_ = now_ns + wait_ns_;
  }

 private:
  static constexpr std::int64_t first_ns = 10'000'000;
  static constexpr std::int64_t most_ns = 2'000'000'000;

  bool noted_ = false;  // `suspicious` stays set until the look
  std::int64_t due_ns_ = base::never;
  std::int64_t wait_ns_ = first_ns;
};

// How long to sleep between two looks.
class pace {
 public:
  // After a look.
  void note(const watch::outcome& seen, std::int64_t now_ns) noexcept {
    was_idle_ = false;
    // While none picks the monitor itself waits for the next timer.
    calm_ = !seen.acted && !seen.moved && !work_waits_hint() &&
            (seen.all_stuck || earliest_timer_hint() == base::never);
    if (seen.acted) {
      acted_ns_ = now_ns;
      looks_ = 0;
      eager_looks_ = eager_looks_max;
      period_ns_ = period_min_ns;
    } else if (++looks_ > eager_looks_) {
      // Who computes is looked at as watch.cpp says; it need not be more often.
      const std::int64_t most = calm_ || seen.all_stuck ? period_calm_ns : busy_period_ns(now_ns);
      period_ns_ = seen.lent ? period_lent_ns : std::min(period_ns_ * 2, most);
    }
  }
  // All processors are idle. Returns: whether they have been since the last look.
  bool note_idle(std::int64_t now_ns) noexcept {
    looks_ = std::max(looks_, eager_looks_);
    period_ns_ = std::max(busy_period_ns(now_ns), period_smooth_ns);
    const std::uint64_t picks = all_picks_hint();
    return std::exchange(idle_picks_, picks) == picks && std::exchange(was_idle_, true);
  }
  // They no longer are, after a long time.
  void reset() noexcept {
    looks_ = 0;
    eager_looks_ /= 2;
    period_ns_ = eager_looks_ != 0 ? period_min_ns : period_busy_ns;
  }
  std::int64_t period_ns() const noexcept { return period_ns_; }
  bool is_long() const noexcept { return calm_ && period_ns_ > period_busy_ns; }

 private:
  std::int64_t busy_period_ns(std::int64_t now_ns) const noexcept {
    const std::int64_t quiet_ns = now_ns - acted_ns_;
    return quiet_ns > steady_after_ns   ? period_steady_ns
           : quiet_ns > smooth_after_ns ? period_smooth_ns
                                        : period_busy_ns;
  }

  int looks_ = 0;
  int eager_looks_ = eager_looks_max;
  std::int64_t acted_ns_ = base::now_ns();
  std::int64_t period_ns_ = period_min_ns;
  bool calm_ = false;
  bool was_idle_ = false;
  std::uint64_t idle_picks_ = 0;  // all_picks_hint() when all were last seen idle
};

// Whoever makes work wakes the monitor from now on. Returns: false if there is some already.
bool start_listening() noexcept {
  sched.lock.lock();
  if (!sched.monitor_listens) {
    sched.monitor_listens = true;
    sched.idle.start_listening();
  }
  sched.lock.unlock();
  base::heavy_barrier();  // [W1]
  return !work_waits_hint();
}

void end_poke() noexcept {
  std::uint32_t word = poked;
  // acquire: what was to be looked at is looked at after this.
  sched.monitor_word.compare_exchange_strong(word, awake, std::memory_order_acquire,
                                             std::memory_order_relaxed);
}

void do_rounds(int& quiet_rounds) noexcept {
  give_back_stacks();
  follow_cpu_limit();
  retry_numb_processors();
  quiet_rounds = all_idle_hint() ? quiet_rounds + 1 : 0;
}

// To what is due already the watch has seen, or has said when to look again.
std::int64_t next_timer_after(std::int64_t now) noexcept {
  const std::int64_t earliest = earliest_timer_hint();
  return earliest > now ? earliest : base::never;
}

void* monitor_main(void*) {
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  base::ask_for_slice(0, own_slice_ns);
  static constinit watch eyes;
  static constinit idle_watch overlooked;
  deadlock_watch deadlock;
  pace step;
  int quiet_rounds = 0;
  std::int64_t next_round_ns = base::now_ns() + round_ns;
  std::int64_t next_retry_ns = base::never;
  for (;;) {
    if (sched.stopping.load(std::memory_order_relaxed)) stop_here();
    std::int64_t now = base::now_ns();
    const std::int64_t look_ns = deadlock.note_suspicion(now);
    const bool idle = all_idle_hint();
    const bool quiet = quiet_rounds >= quiet_rounds_max;
    std::int64_t until = std::min(look_ns, quiet && idle ? base::never : next_round_ns);
    bool deep = false;
    bool listens = false;
    bool all_stuck = false;
    bool is_alone = false;  // nobody else has looked after anything for a while
    const std::int64_t again_ns = overlooked.look(now);
    until = std::min(until, again_ns);
    if (idle) {
      deep = step.note_idle(now) && again_ns == base::never;
      if (!deep) until = std::min(until, now + step.period_ns());
    } else {
      const watch::outcome seen = eyes.look(now);
      step.note(seen, now);
      if (seen.rescued) next_retry_ns = now + retry_ns;
      if (next_retry_ns == base::never && sched.numb_count.load(std::memory_order_relaxed) != 0) {
        next_retry_ns =
            std::max(now + period_busy_ns, sched.refused_until_ns.load(std::memory_order_relaxed));
      }
      if (now >= next_retry_ns) {
        next_retry_ns = base::never;
        retry_numb_processors();
      }
      until = std::min(until, next_retry_ns);
      until = std::min({until, now + step.period_ns(), seen.look_again_ns});
      all_stuck = seen.all_stuck;
      is_alone = seen.all_stuck && now - seen.since_ns >= unattended_ns;
      if (all_stuck) until = std::min(until, next_timer_after(now));
      until = std::max(until, now + period_min_ns);
      listens = step.is_long();
      if (listens && !start_listening()) until = now + period_min_ns;
    }
    sched.monitor_is_alone.store(all_stuck, std::memory_order_relaxed);
    sched.monitor_until_ns.store(idle ? 0 : until, std::memory_order_seq_cst);
    // A timer that was set before its owner could see the line above.
    if (all_stuck) until = std::max(std::min(until, next_timer_after(now)), now + period_min_ns);
    if (deep) {
      sleep_deeply(until);
      step.reset();
    } else if (is_alone && the_poller.try_attend()) {
      sleep_in_poller(until);
      attend_poller();
    } else {
      if (!idle) look_at_poller(now);
      sleep_lightly(until);
    }
    if (listens) {
      const std::lock_guard hold(sched.lock);
      (void)stop_monitor_listening_locked();
    }
    end_poke();
    now = base::now_ns();
    if (now >= look_ns) deadlock.look(now);
    if (now >= next_round_ns && !(quiet && idle)) {
      next_round_ns = now + round_ns;
      do_rounds(quiet_rounds);
    } else if (!idle) {
      quiet_rounds = 0;
    }
  }
}

}  // namespace

int start_monitor() noexcept { return start_service("weft-monitor", &monitor_main); }

// [J1] A machine leaves the idle list, then looks at the word; the monitor writes the word, then
// looks whether all are idle. The lock's exchange and the seq_cst store order both sides.
void note_activity() noexcept {
  if (sched.monitor_word.load(std::memory_order_seq_cst) != deep_sleep) return;
  std::uint32_t word = deep_sleep;
  if (sched.monitor_word.compare_exchange_strong(word, awake, std::memory_order_seq_cst)) {
    base::futex_wake(sched.monitor_word, 1);
  }
}

bool stop_monitor_listening_locked() noexcept {
  if (!sched.monitor_listens) return false;
  sched.monitor_listens = false;
  sched.idle.stop_listening();
  return true;
}

void poke_monitor() noexcept {
  const std::uint32_t before = sched.monitor_word.exchange(poked, std::memory_order_seq_cst);
  if (before == in_poller) {
    base::interrupt_poller();
  } else if (before != poked) {
    base::futex_wake(sched.monitor_word, 1);
  }
}

void tell_monitor_of_timer(std::int64_t when_ns) noexcept {
  // relaxed, both: hints. While processors pick they look at the timers themselves.
  const std::int64_t until = sched.monitor_until_ns.load(std::memory_order_relaxed);
  const std::int64_t slack =
      sched.monitor_is_alone.load(std::memory_order_relaxed) ? timer_slack_ns : period_smooth_ns;
  if (until != 0 && when_ns < until - slack) poke_monitor();
}

void tell_monitor() noexcept {
  // seq_cst, both: the caller lies down, then looks here; the monitor writes here, then looks who
  // has lain down.
  if (sched.suspicious.load(std::memory_order_seq_cst)) return;
  if (!sched.suspicious.exchange(true, std::memory_order_seq_cst)) poke_monitor();
}

}  // namespace weft::sched
