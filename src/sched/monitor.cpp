// monitor.cpp: a thread without a processor that looks after all the others.
//
// The monitor looks at every processor (watch.hpp) every 20 us, and ever more rarely when there has
// been nothing to do for a millisecond. After each long sleep that first millisecond is halved:
// otherwise a server that waits for its clients again and again would pay for it each time.
//
// How long the monitor sleeps between two looks (monitor_pace.hpp):
//
//   up to 0.5 ms  while processors pick goroutines, because one of these may block the next moment.
//                 A goroutine that computes for longer is looked at every millisecond or two
//   from 0.1 ms   after a loan, because a loan is given back before long
//   up to 2 ms    while processors pick, if nothing had to be done for a tenth of a second; 5 ms
//                 after a second. A look costs some 20 us of CPU time, most of it for waking up
//   up to 10 ms   while each processor computes away and no other goroutine wants to run. Meanwhile
//                 the monitor listens like an idle processor (idle_state.hpp): a thread that makes
//                 work wakes it
//   until woken   while all processors are idle (after some 2 ms)
//
// While no processor picks, none of them looks at the timers. Then the monitor wakes when the next
// timer is due. Nor does any of them poll. Then the monitor sleeps in the poller, if no machine
// does; or, if it is going to sleep for a short time only, it polls in passing.
//
// Once a second, while goroutines run, the monitor gives the pages of stacks that have long been
// idle back to the system, lets max_procs() follow the CPU limit, and tries again to find threads
// for processors that the kernel refused one.
//
// When a thread has lain down for good while weft::run is on, the monitor looks 10 ms later whether
// any goroutine can still run (deadlock.cpp), and then ever more rarely while all are idle.
#include "sched/monitor.hpp"

#include "base/clock.hpp"
#include "base/kernel.hpp"
#include "base/membarrier.hpp"
#include "base/platform.hpp"
#include "sched/all_timers.hpp"
#include "sched/deadlock.hpp"
#include "sched/idle_list.hpp"
#include "sched/idle_watch.hpp"
#include "sched/keeper.hpp"
#include "sched/machine_thread.hpp"
#include "sched/monitor_pace.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/poller.hpp"
#include "sched/resize.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"
#include "sched/wake.hpp"
#include "sched/watch.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <sys/prctl.h>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

constexpr std::int64_t round_ns = 1'000'000'000;
constexpr std::int64_t stack_idle_ns = 1'000'000'000;
constexpr int quiet_rounds_max = 3;
constexpr std::int64_t retry_ns = 10'000'000;
constexpr std::int64_t own_slice_ns = 100'000;
constexpr std::int64_t unattended_ns = 200'000;

void give_back_stacks() noexcept {
  while (stack::central().give_back(base::now_ns(), stack_idle_ns) >= stack::pool::give_back_max) {
    base::yield_thread();
  }
}

void retry_numb_processors() noexcept {
  sched.lock.lock();
  revive_numb_locked();
  sched.lock.unlock();
  base::heavy_barrier();  // [W1]
  if (sched.idle.should_wake() && work_waits_hint()) wake_somebody();
  keep_time();
}

// Polls if no thread has polled for a while. A machine that sleeps with a processor does it better.
void look_at_poller(std::int64_t now_ns) noexcept {
  if (now_ns - the_poller.last_poll_ns() < unattended_ns || !the_poller.try_attend()) return;
  poll_until(0);
  attend_poller();
}

// Timers that are due do not count: the watch has seen them, or has said when to look again.
std::int64_t next_timer_after(std::int64_t now) noexcept {
  const std::int64_t earliest = earliest_timer_hint();
  return earliest > now ? earliest : base::never;
}

class monitor {
 public:
  void begin(std::int64_t now_ns) noexcept {
    pace_.begin(now_ns);
    next_round_ns_ = now_ns + round_ns;
  }
  void run_round() noexcept;

 private:
  // What the looks of one round have found.
  struct findings {
    std::int64_t now_ns;
    std::int64_t deadlock_ns;    // when to look for a deadlock
    std::int64_t until_ns;       // when to look again
    bool is_idle = false;        // all processors are idle
    bool sleeps_deeply = false;  // and have been for a while
    bool listens = false;        // a thread that makes work wakes the monitor
    bool all_stuck = false;      // every processor is held, and none picks
    bool is_alone = false;       // for a while no processor has looked at timers or descriptors
  };

  findings look() noexcept;
  void look_at_busy(findings& f) noexcept;
  void note_retries(const watch::outcome& seen, std::int64_t now_ns) noexcept;
  void sleep(const findings& f) noexcept;
  void do_chores(const findings& f) noexcept;
  bool is_quiet() const noexcept { return quiet_rounds_ >= quiet_rounds_max; }

  watch watch_;
  idle_watch overlooked_;
  deadlock_watch deadlock_;
  monitor_pace pace_;
  int quiet_rounds_ = 0;
  std::int64_t next_round_ns_ = 0;
  std::int64_t next_retry_ns_ = base::never;  // to find threads for processors without one (numb)
};

void monitor::note_retries(const watch::outcome& seen, std::int64_t now_ns) noexcept {
  if (seen.rescued) next_retry_ns_ = now_ns + retry_ns;
  if (next_retry_ns_ == base::never && sched.numb_count.load(std::memory_order_relaxed) != 0) {
    next_retry_ns_ = std::max(now_ns + monitor_pace::busy_ns,
                              sched.refused_until_ns.load(std::memory_order_relaxed));
  }
  if (now_ns >= next_retry_ns_) {
    next_retry_ns_ = base::never;
    retry_numb_processors();
  }
}

void monitor::look_at_busy(findings& f) noexcept {
  const std::int64_t now = f.now_ns;
  const std::int64_t soonest = now + monitor_pace::least_ns;
  const watch::outcome seen = watch_.look(now);
  pace_.note(seen, now);
  note_retries(seen, now);
  f.until_ns = std::min({f.until_ns, next_retry_ns_, now + pace_.period_ns(), seen.look_again_ns});
  f.all_stuck = seen.all_stuck;
  f.is_alone = seen.all_stuck && now - seen.since_ns >= unattended_ns;
  if (f.all_stuck) f.until_ns = std::min(f.until_ns, next_timer_after(now));
  f.until_ns = std::max(f.until_ns, soonest);
  f.listens = pace_.is_long();
  if (f.listens && !start_listening()) f.until_ns = soonest;
}

monitor::findings monitor::look() noexcept {
  const std::int64_t now = base::now_ns();
  findings f{.now_ns = now, .deadlock_ns = deadlock_.note_suspicion(now), .until_ns = base::never};
  f.is_idle = all_idle_hint();
  f.until_ns = std::min(f.deadlock_ns, is_quiet() && f.is_idle ? base::never : next_round_ns_);
  const std::int64_t again_ns = overlooked_.look(now);
  f.until_ns = std::min(f.until_ns, again_ns);
  if (f.is_idle) {
    f.sleeps_deeply = pace_.note_idle(now) && again_ns == base::never;
    if (!f.sleeps_deeply) f.until_ns = std::min(f.until_ns, now + pace_.period_ns());
  } else {
    look_at_busy(f);
  }
  sched.monitor_is_alone.store(f.all_stuck, std::memory_order_relaxed);
  sched.monitor_until_ns.store(f.is_idle ? 0 : f.until_ns, std::memory_order_seq_cst);  // [J3]
  // A timer may have been set before its owner could see the line above.
  if (f.all_stuck) {
    f.until_ns =
        std::max(std::min(f.until_ns, next_timer_after(now)), now + monitor_pace::least_ns);
  }
  return f;
}

void monitor::sleep(const findings& f) noexcept {
  if (f.sleeps_deeply) {
    sleep_deeply(f.until_ns);
    pace_.reset();
  } else if (f.is_alone && the_poller.try_attend()) {
    sleep_in_poller(f.until_ns);
    attend_poller();
  } else {
    if (!f.is_idle) look_at_poller(f.now_ns);
    sleep_lightly(f.until_ns);
  }
  if (f.listens) {
    const std::lock_guard hold(sched.lock);
    (void)stop_monitor_listening_locked();
  }
  end_poke();
}

// Does what is due once a second while goroutines run, and the look for a deadlock.
void monitor::do_chores(const findings& f) noexcept {
  const std::int64_t now = base::now_ns();
  if (now >= f.deadlock_ns) deadlock_.look(now);
  if (now >= next_round_ns_ && !(is_quiet() && f.is_idle)) {
    next_round_ns_ = now + round_ns;
    give_back_stacks();
    follow_cpu_limit();
    retry_numb_processors();
    quiet_rounds_ = all_idle_hint() ? quiet_rounds_ + 1 : 0;
  } else if (!f.is_idle) {
    quiet_rounds_ = 0;
  }
}

void monitor::run_round() noexcept {
  const findings f = look();
  sleep(f);
  do_chores(f);
}

void* monitor_main(void*) {
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  base::ask_for_slice(0, own_slice_ns);
  static constinit monitor self;
  self.begin(base::now_ns());
  for (;;) {
    if (sched.stopping.load(std::memory_order_relaxed)) stop_here();
    self.run_round();
  }
}

}  // namespace

int start_monitor() noexcept { return start_service("weft-monitor", &monitor_main); }

}  // namespace weft::sched
