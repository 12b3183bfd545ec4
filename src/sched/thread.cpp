// thread.cpp: plain threads in the place of goroutines. A thread that blocks in one of weft's
// primitives has a record too, which sits in wait queues like any other; to ready it is to wake it.
#include "base/check.hpp"
#include "sched/parker.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"

namespace weft::sched {
namespace {

struct thread_record : goroutine {
  parker sleep;
  thread_record() noexcept { how = mode::thread; }
};

thread_record* record_of(goroutine* g) noexcept {
  WEFT_ASSERT(g->how == mode::thread);
  return static_cast<thread_record*>(g);
}

}  // namespace

goroutine* this_thread_record() noexcept {
  thread_local thread_record record;
  return &record;
}

constinit thread_local simulation* current_simulation = nullptr;

void wake_thread(goroutine* g) noexcept {
  if (g->how == mode::simulated) {
    if (simulation* const s = this_simulation()) return s->ready(g);
    base::fatal(
        "a goroutine in bubble() or explore() (weft/test.hpp) was woken by something outside: "
        "make the channels, locks, timers and contexts that it waits for in there, too");
  }
  if (record_of(g)->sleep.wake()) {
    the_scheduler.thread_wakes.fetch_add(1, std::memory_order_seq_cst);
  }
}

// A thread is counted as asleep later, and as awake earlier, than it is: while its waker is about
// to count, that one runs itself.
void park_thread(goroutine* g) noexcept {
  record_of(g)->sleep.wait([] {
    the_scheduler.thread_sleeps.fetch_add(1, std::memory_order_seq_cst);
    suspect_deadlock();
  });
}

bool park_thread_until(goroutine* g, std::int64_t deadline_ns) noexcept {
  return record_of(g)->sleep.wait_until(deadline_ns);
}

}  // namespace weft::sched
