// monitor.cpp: a thread without a processor that looks after all the others.
//
// Once a second, while goroutines run: it gives the pages of stacks that have long been idle back
// to the system, lets max_procs() follow the CPU limit, and tries again to find threads for
// processors that the kernel refused one. When all processors are idle and nothing is left to give
// back it sleeps until a machine wakes up.
//
// When a thread has lain down for good while weft::run is on, the monitor looks 10 ms later whether
// anybody is left who could run (deadlock.cpp), and then ever more rarely while all are idle.
#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "sched/scheduler.hpp"

#include <algorithm>
#include <cstdint>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

constexpr std::int64_t round_ns = 1'000'000'000;
constexpr std::int64_t stack_idle_ns = 1'000'000'000;
constexpr int quiet_rounds_max = 3;

enum : std::uint32_t { awake, deep_sleep, suspicious };

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

// Until `deadline_ns`, or until the word is no longer `word`.
void sleep_while(std::uint32_t word, std::int64_t deadline_ns) noexcept {
  while (sched.monitor_word.load(std::memory_order_acquire) == word &&
         base::now_ns() < deadline_ns) {
    base::futex_wait_until(sched.monitor_word, word, deadline_ns);
  }
}

// Until a machine wakes up, or until there is a suspicion.
void sleep_deeply() noexcept {
  std::uint32_t word = awake;
  if (!sched.monitor_word.compare_exchange_strong(word, deep_sleep,
                                                  std::memory_order_seq_cst)) {  // [J1]
    return;
  }
  // A machine that woke up meanwhile saw no deep sleep; it is no longer in the idle list.
  while (all_idle_hint() && sched.monitor_word.load(std::memory_order_seq_cst) == deep_sleep) {
    base::futex_wait(sched.monitor_word, deep_sleep);
  }
  word = deep_sleep;
  sched.monitor_word.compare_exchange_strong(word, awake, std::memory_order_relaxed);
}

// When to look for a deadlock: first_ns after a suspicion, then after twice the time each, while
// everybody is idle.
class deadlock_watch {
 public:
  std::uint32_t word() const noexcept { return noted_ ? suspicious : awake; }
  // Returns: when the next look is due.
  std::int64_t note_suspicion(std::int64_t now_ns) noexcept {
    if (!noted_ && sched.monitor_word.load(std::memory_order_acquire) == suspicious) {
      noted_ = true;
      wait_ns_ = first_ns;
      due_ns_ = std::min(due_ns_, now_ns + wait_ns_);
    }
    return due_ns_;
  }
  void look(std::int64_t now_ns) noexcept {
    // Whoever lies down from now on tells again; until now nobody had to.
    if (noted_) sched.monitor_word.store(awake, std::memory_order_seq_cst);
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

  bool noted_ = false;  // the word says so, and stays like that until the look
  std::int64_t due_ns_ = base::never;
  std::int64_t wait_ns_ = first_ns;
};

void* monitor_main(void*) {
  deadlock_watch deadlock;
  int quiet_rounds = 0;
  std::int64_t next_round_ns = base::now_ns() + round_ns;
  for (;;) {
    const std::int64_t look_ns = deadlock.note_suspicion(base::now_ns());
    const bool quiet = quiet_rounds >= quiet_rounds_max;
    if (!quiet || look_ns != base::never) {
      sleep_while(deadlock.word(), quiet ? look_ns : std::min(next_round_ns, look_ns));
    } else {
      sleep_deeply();
    }
    const std::int64_t now = base::now_ns();
    if (now >= look_ns) deadlock.look(now);
    if (quiet) {
      if (all_idle_hint()) continue;
      quiet_rounds = 0;
      next_round_ns = now + round_ns;
    }
    if (now < next_round_ns) continue;
    next_round_ns = now + round_ns;
    give_back_stacks();
    follow_cpu_limit();
    retry_numb_processors();
    quiet_rounds = all_idle_hint() ? quiet_rounds + 1 : 0;
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

void tell_monitor() noexcept {
  // seq_cst, both: the caller lies down, then looks here; the monitor writes the word, then looks
  // who has lain down.
  if (sched.monitor_word.load(std::memory_order_seq_cst) == suspicious) return;
  if (sched.monitor_word.exchange(suspicious, std::memory_order_seq_cst) != suspicious) {
    base::futex_wake(sched.monitor_word, 1);
  }
}

}  // namespace weft::sched
