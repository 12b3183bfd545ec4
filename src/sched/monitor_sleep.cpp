#include "sched/monitor_sleep.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/futex.hpp"
#include "base/interrupt.hpp"
#include "base/membarrier.hpp"
#include "sched/goroutine_list.hpp"
#include "sched/monitor_pace.hpp"
#include "sched/poller.hpp"
#include "sched/wake.hpp"
#include "sched/work.hpp"

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

enum : std::uint32_t { awake, poked, deep_sleep, in_poller };

constexpr std::int64_t timer_slack_ns = 50'000;

}  // namespace

bool all_idle_hint() noexcept {
  return sched.idle_count.load(std::memory_order_relaxed) >=
             sched.procs.load(std::memory_order_relaxed) &&
         sched.numb_count.load(std::memory_order_relaxed) == 0;
}

void sleep_lightly(std::int64_t deadline_ns) noexcept {
  while (sched.monitor_word.load(std::memory_order_acquire) == awake &&  // [J2]
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

void sleep_in_poller(std::int64_t deadline_ns) noexcept {
  std::uint32_t word = awake;
  const bool sleeps = sched.monitor_word.compare_exchange_strong(
      word, in_poller, std::memory_order_acq_rel, std::memory_order_relaxed);  // [J2]
  poll_until(sleeps ? deadline_ns : 0);
  word = in_poller;
  sched.monitor_word.compare_exchange_strong(word, awake, std::memory_order_relaxed);
}

void sleep_deeply(std::int64_t deadline_ns) noexcept {
  std::uint32_t word = awake;
  if (!sched.monitor_word.compare_exchange_strong(word, deep_sleep,
                                                  std::memory_order_seq_cst)) {  // [J1]
    return;
  }
  // A machine that woke up meanwhile saw no deep sleep, but it is no longer in the idle list.
  while (all_idle_hint() &&
         sched.monitor_word.load(std::memory_order_seq_cst) == deep_sleep &&  // [J1]
         base::now_ns() < deadline_ns) {
    base::futex_wait_until(sched.monitor_word, deep_sleep, deadline_ns);
  }
  word = deep_sleep;
  sched.monitor_word.compare_exchange_strong(word, awake, std::memory_order_relaxed);
}

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
  // [J2] What the poke was about is looked at after this.
  sched.monitor_word.compare_exchange_strong(word, awake, std::memory_order_acquire,
                                             std::memory_order_relaxed);
}

void note_activity() noexcept {
  if (sched.monitor_word.load(std::memory_order_seq_cst) != deep_sleep) return;  // [J1]
  std::uint32_t word = deep_sleep;
  if (sched.monitor_word.compare_exchange_strong(word, awake,
                                                 std::memory_order_seq_cst)) {  // [J1]
    base::futex_wake(sched.monitor_word, 1);
  }
}

bool stop_monitor_listening_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  if (!sched.monitor_listens) return false;
  sched.monitor_listens = false;
  sched.idle.stop_listening();
  return true;
}

void poke_monitor() noexcept {
  const std::uint32_t before =
      sched.monitor_word.exchange(poked, std::memory_order_seq_cst);  // [J2]
  if (before == in_poller) {
    base::interrupt_poller();
  } else if (before != poked) {
    base::futex_wake(sched.monitor_word, 1);
  }
}

void tell_monitor_of_timer(std::int64_t when_ns) noexcept {
  // relaxed, both: hints. Processors that pick look at the timers themselves.
  const std::int64_t until = sched.monitor_until_ns.load(std::memory_order_relaxed);
  const bool is_alone = sched.monitor_is_alone.load(std::memory_order_relaxed);
  const std::int64_t slack = is_alone ? timer_slack_ns : monitor_pace::smooth_ns;
  if (until != 0 && when_ns < until - slack) poke_monitor();
}

void tell_monitor() noexcept {
  base::light_barrier();                                                            // [DL3]
  if (sched.suspicious.load(std::memory_order_seq_cst)) return;                     // [DL3]
  if (!sched.suspicious.exchange(true, std::memory_order_seq_cst)) poke_monitor();  // [DL3]
}

}  // namespace weft::sched
