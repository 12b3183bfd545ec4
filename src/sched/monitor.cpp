// monitor.cpp: a thread without a processor that looks after all the others.
//
// Once a second, while goroutines run: it gives the pages of stacks that have long been idle back
// to the system, lets max_procs() follow the CPU limit, and tries again to find threads for
// processors that the kernel refused one. When all processors are idle and nothing is left to give
// back it sleeps until a machine wakes up.
#include "base/clock.hpp"
#include "sched/scheduler.hpp"

#include <cstdint>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

constexpr std::int64_t round_ns = 1'000'000'000;
constexpr std::int64_t stack_idle_ns = 1'000'000'000;
constexpr int quiet_rounds_max = 3;

enum : std::uint32_t { awake, deep_sleep };

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
    sched.idle.start_listening();
  }
  sched.lock.unlock();
  base::heavy_barrier();  // [W1]
  if (sched.idle.should_wake() && work_waits_hint()) wake_for_inbox();
}

bool all_idle_hint() noexcept {
  return sched.idle_count.load(std::memory_order_relaxed) >=
         sched.procs.load(std::memory_order_relaxed);
}

void sleep_until(std::int64_t deadline_ns) noexcept {
  while (base::futex_wait_until(sched.monitor_word, awake, deadline_ns) == base::woken::by_wake &&
         base::now_ns() < deadline_ns) {
  }
}

void sleep_deeply() noexcept {
  sched.monitor_word.store(deep_sleep, std::memory_order_seq_cst);  // [N1]
  // A machine that woke up meanwhile saw no deep sleep; it is no longer in the idle list.
  while (all_idle_hint() && sched.monitor_word.load(std::memory_order_seq_cst) == deep_sleep) {
    base::futex_wait(sched.monitor_word, deep_sleep);
  }
  sched.monitor_word.store(awake, std::memory_order_relaxed);
}

void* monitor_main(void*) {
  int quiet_rounds = 0;
  for (;;) {
    sleep_until(base::now_ns() + round_ns);
    give_back_stacks();
    follow_cpu_limit();
    retry_numb_processors();
    quiet_rounds = all_idle_hint() ? quiet_rounds + 1 : 0;
    if (quiet_rounds >= quiet_rounds_max) {
      sleep_deeply();
      quiet_rounds = 0;
    }
  }
}

}  // namespace

int start_monitor() noexcept { return start_service("weft-monitor", &monitor_main); }

// [N1] A machine leaves the idle list, then looks at the word; the monitor writes the word, then
// looks whether all are idle. The lock's exchange and the seq_cst store order both sides.
void note_activity() noexcept {
  if (sched.monitor_word.load(std::memory_order_seq_cst) != deep_sleep) return;
  if (sched.monitor_word.exchange(awake, std::memory_order_seq_cst) == deep_sleep) {
    base::futex_wake(sched.monitor_word, 1);
  }
}

}  // namespace weft::sched
