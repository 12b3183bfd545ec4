// thread.cpp: plain threads in the place of goroutines. A thread that blocks in one of weft's
// primitives has a record too, which sits in wait queues like any other; to ready it is to wake it.
#include "base/check.hpp"
#include "sched/parker.hpp"
#include "sched/scheduler.hpp"

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

void wake_thread(goroutine* g) noexcept { record_of(g)->sleep.wake(); }

void park_thread(goroutine* g) noexcept { record_of(g)->sleep.wait(); }

bool park_thread_until(goroutine* g, std::int64_t deadline_ns) noexcept {
  return record_of(g)->sleep.wait_until(deadline_ns);
}

}  // namespace weft::sched
