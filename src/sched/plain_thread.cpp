// plain_thread.cpp: plain threads that wait like goroutines. A thread that blocks in one of weft's
// primitives has a record, too, which sits in wait queues like any other. To ready the record means
// to wake the thread.
#include "sched/plain_thread.hpp"

#include "base/check.hpp"
#include "base/fatal.hpp"
#include "sched/machine_thread.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/parker.hpp"
#include "sched/report.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"

#include <atomic>

namespace weft::sched {
namespace {

struct thread_record : goroutine {
  parker sleep;
  std::atomic<bool> sleeps{false};  // relaxed: only the thread itself looks, in a handler
  thread_record() noexcept { how = mode::thread; }
};

thread_record* record_of(goroutine* g) noexcept {
  WEFT_ASSERT(g->how == mode::thread);
  return static_cast<thread_record*>(g);
}

// Marks that a thread sleeps. If it is about to sleep again meanwhile, that is in a signal handler.
class sleep_mark {
 public:
  explicit sleep_mark(goroutine* g) noexcept : record_(*record_of(g)) {
    if (record_.sleeps.load(std::memory_order_relaxed)) die_in_handler();
    record_.sleeps.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  sleep_mark(const sleep_mark&) = delete;
  sleep_mark& operator=(const sleep_mark&) = delete;
  ~sleep_mark() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    record_.sleeps.store(false, std::memory_order_relaxed);
  }

 private:
  thread_record& record_;
};

constinit thread_local thread_record* this_record = nullptr;  // null: not used yet

}  // namespace

goroutine* this_thread_record() noexcept {
  if (this_record != nullptr) return this_record;
  thread_local thread_record record;
  return this_record = &record;
}

goroutine* renew_thread_record() noexcept {
  return this_record = new thread_record;  // never freed: the process exits
}

constinit thread_local simulation* current_simulation = nullptr;

void wake_thread(goroutine* g) noexcept {
  if (g->how == mode::stopped) return;
  if (g->how == mode::simulated) {
    if (simulation* const s = this_simulation()) return s->ready(g);
    base::fatal(
        "a goroutine in bubble() or explore() (weft/test.hpp) was woken by something outside: "
        "make the channels, locks, timers and contexts that it waits for in there, too");
  }
  if (record_of(g)->sleep.wake()) {
    the_scheduler.thread_wakes.fetch_add(1, std::memory_order_seq_cst);  // [DL2]
  }
}

// A thread is counted as asleep later than it is, and as awake earlier: its waker counts, and runs
// while it is about to count.
void park_thread(goroutine* g) noexcept {
  if (g->how == mode::paused) return run_until_ready(g);  // this thread ends the process
  const sleep_mark mark(g);
  record_of(g)->sleep.wait([] {
    the_scheduler.thread_sleeps.fetch_add(1, std::memory_order_seq_cst);  // [DL2]
    suspect_deadlock();
  });
}

bool park_thread_until(goroutine* g, std::int64_t deadline_ns) noexcept {
  const sleep_mark mark(g);
  return record_of(g)->sleep.wait_until(deadline_ns);
}

}  // namespace weft::sched
