// park.cpp: the seam between primitives and scheduler; weft/detail/park.hpp has the contract.
//
// Each function knows three kinds of callers: a goroutine, which parks on its machine; a plain
// thread, which sleeps (plain_thread.cpp); and a goroutine of a test's simulation, which has no
// machine (simulation.hpp).
//
// The hard part is a wait with a deadline, park_until(). Two may want to end it: a waker, and the
// alarm, a timer on the stack of the goroutine. One of them must do it, and only one. The
// primitive's queue decides, under the primitive's own lock:
//
//     waker                                  alarm, on any machine, under its heap's lock
//     lock the primitive                     give_up(): locks the primitive
//     is the goroutine in the queue?           is the goroutine in the queue?
//       yes: takes it out                        yes: takes it out, returns true
//       no: finds another one, or none           no: returns false
//     unlock                                   unlocks
//     ready(the goroutine it has taken)      true: makes the goroutine runnable
//                                            false: does nothing; a waker readies it
//
// The goroutine is in the queue before the alarm is armed. So a waker may take it out at any time:
// before the alarm is armed, while it is, or while it rings. All of that is well, because:
//
//   I1  A goroutine becomes runnable once for each wait: by the one that took it out of the queue.
//       The alarm may ring, or a waker may come, before the goroutine has left its machine. The
//       thread that picks the goroutine then waits until it has: [C1] (switch.cpp).
//   I2  The alarm is gone before its goroutine's stack frame is. disarm() takes the heap's lock,
//       under which alarms ring. So after it the alarm neither rings nor will, and what it wrote
//       (gave_up) is visible.
//   I3  give_up() is called under the lock of a heap. So it takes locks of a higher rank only, and
//       a goroutine disarms its alarm while it holds no lock.
//
// A plain thread needs no alarm. It wakes up at the deadline by itself and calls give_up(). If that
// returns false, a waker has taken the thread out of the queue: its token is on the way, and has to
// be consumed before the thread goes on (parker.hpp).
//
// When the process ends, the goroutines that were there never run again (mode `stopped`), and the
// objects that they wait for may be destroyed before them. So the alarm of such a goroutine does
// not call give_up().
#include <weft/detail/park.hpp>

#include "base/check.hpp"
#include "base/random.hpp"
#include "sched/all_timers.hpp"
#include "sched/choice.hpp"
#include "sched/enter.hpp"
#include "sched/fast_park.hpp"
#include "sched/machine_thread.hpp"
#include "sched/plain_thread.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"
#include "sched/switch.hpp"
#include "sched/wake.hpp"
#include "sched/work.hpp"

#include <new>
#include <thread>

namespace weft::detail {
namespace {

using sched::machine;
using sched::mode;
using sched::state;

// The timer of a goroutine that sleeps until a deadline: on its stack, disarmed before it goes on.
struct alarm : sched::timer {
  goroutine* who = nullptr;
  bool (*give_up)(void*) = nullptr;
  void* give_up_argument = nullptr;
  bool gave_up = false;

  alarm() noexcept { wakes = &would_wake; }
  static bool would_wake(const sched::timer* t) noexcept {
    return static_cast<const alarm*>(t)->who->how != mode::stopped;
  }
};

// Runs under the heap's lock, on some machine or in a simulation.
void ring_alarm(sched::timer* t) noexcept {
  alarm* const a = static_cast<alarm*>(t);
  if (a->who->how == mode::stopped) return;  // the object that it waits for may be gone
  if (a->give_up != nullptr && !a->give_up(a->give_up_argument)) return;  // I1: a waker has it
  a->gave_up = true;
  machine* const m = sched::this_machine();
  if (m == nullptr) return sched::this_simulation()->ready(a->who);
  WEFT_ASSERT(a->who->get_status() == state::waiting);
  a->who->set_status(state::runnable);
  sched::push_woken(*m->p, a->who);
  sched::work_made(m);
}

goroutine* prepare_park_thread(wait_reason reason) noexcept {
  goroutine* const self = sched::this_thread_record();
  self->reason.store(reason, std::memory_order_relaxed);
  self->set_status(state::waiting);
  return self;
}

}  // namespace

std::string_view to_string(wait_reason reason) noexcept {
  switch (reason) {
    case wait_reason::none:
      return "waiting";
    case wait_reason::sleep:
      return "sleep";
    case wait_reason::wait_group:
      return "wait_group wait";
    case wait_reason::future:
      return "future wait";
    case wait_reason::chan_receive:
      return "chan receive";
    case wait_reason::chan_send:
      return "chan send";
    case wait_reason::chan_receive_nil:
      return "chan receive (nil chan)";
    case wait_reason::chan_send_nil:
      return "chan send (nil chan)";
    case wait_reason::select:
      return "select";
    case wait_reason::select_empty:
      return "select (no cases)";
    case wait_reason::mutex:
      return "mutex lock";
    case wait_reason::shared_mutex_shared:
      return "shared_mutex lock_shared";
    case wait_reason::shared_mutex:
      return "shared_mutex lock";
    case wait_reason::condition:
      return "condition_variable wait";
    case wait_reason::semaphore:
      return "semaphore acquire";
    case wait_reason::latch:
      return "latch wait";
    case wait_reason::barrier:
      return "barrier wait";
    case wait_reason::once:
      return "call_once";
    case wait_reason::io:
      return "IO wait";
    case wait_reason::run:
      return "run";
  }
  return "waiting";
}

goroutine* prepare_park(wait_reason reason) {
  machine* m = sched::this_machine();
  if (m == nullptr) [[unlikely]] {
    if (sched::simulation* const s = sched::this_simulation()) {
      s->prepare_park(reason);
      return s->self();
    }
    sched::ensure_started();
    return prepare_park_thread(reason);
  }
  sched::expect_outside(m);
  (void)sched::enter_to_park(m);
  return prepare_park_inside(reason);
}

goroutine* prepare_park_inside(wait_reason reason) noexcept {
  machine* const m = sched::this_machine();
  if (m == nullptr) [[unlikely]] {
    if (sched::simulation* const s = sched::this_simulation()) {
      s->prepare_park_inside(reason);
      return s->self();
    }
    return prepare_park_thread(reason);
  }
  return sched::prepare_park_on(m, reason);
}

void cancel_park() noexcept {
  machine* const m = sched::this_machine();
  if (m == nullptr) {
    if (sched::simulation* const s = sched::this_simulation()) s->cancel_park();
    return;
  }
  m->g->context.busy.store(0, std::memory_order_relaxed);  // no waker has found it
  m->g->set_status(state::running);
  sched::leave(m);
}

void park() noexcept {
  machine* const m = sched::this_machine();
  if (m == nullptr) {
    if (sched::simulation* const s = sched::this_simulation()) return s->park();
    sched::park_thread(sched::this_thread_record());
    return;
  }
  sched::park_on(m);
}

bool park_until(std::int64_t deadline_ns, bool (*give_up)(void*), void* argument) noexcept {
  machine* const m = sched::this_machine();
  sched::simulation* const s = m == nullptr ? sched::this_simulation() : nullptr;
  goroutine* const g = m != nullptr ? m->g : s != nullptr ? s->self() : sched::this_thread_record();
  if (g->how == mode::thread) {
    if (sched::park_thread_until(g, deadline_ns)) return true;
    if (give_up == nullptr || give_up(argument)) return false;
    sched::park_thread(g);  // a waker has found it already; the token is on the way
    return true;
  }
  alarm a;
  a.fire = &ring_alarm;
  a.who = g;
  a.give_up = give_up;
  a.give_up_argument = argument;
  sched::arm_timer(a, deadline_ns);
  if (s != nullptr) {
    s->park();
  } else if (m == nullptr) {
    sched::run_until_ready(g);
  } else {
    sched::suspend(m, g);
  }
  sched::timer_heap::disarm(a);  // I2
  if (m != nullptr) sched::leave(sched::this_machine());
  return !a.gave_up;
}

void ready(goroutine* g) noexcept {
  if (g->how >= mode::thread) {
    sched::wake_thread(g);
    return;
  }
  machine* m = sched::this_machine();
  if (m == nullptr) [[unlikely]] {
    g->set_status(state::runnable);
    sched::inject(sched::global_queue::from::woken, g);
    return;
  }
  m = sched::enter_to_ready(m);
  sched::ready_on(m, g);
  sched::leave(m);
}

void ready_inside(goroutine* g) noexcept {
  machine* const m = sched::this_machine();
  if (m == nullptr || g->how >= mode::thread) {
    ready(g);  // needs no processor in either case
  } else {
    sched::ready_on(m, g);
  }
}

void enter_runtime() {
  machine* const m = sched::this_machine();
  if (m == nullptr) return;
  sched::expect_outside(m);
  (void)sched::enter(m);
}

void leave_runtime() noexcept {
  if (machine* const m = sched::this_machine()) sched::leave(m);
}

void* allocate_block() {
  if (machine* m = sched::this_machine()) {
    m = sched::enter(m);
    void* const block = m->p->blocks.take();
    sched::leave(m);
    if (block != nullptr) return block;
  }
  return ::operator new(block_bytes);
}

void free_block(void* block) noexcept {
  if (machine* m = sched::this_machine()) {
    m = sched::enter(m);
    const bool kept = m->p->blocks.put(block);
    sched::leave(m);
    if (kept) return;
  }
  ::operator delete(block, block_bytes);
}

std::uint32_t choose_inside(std::uint32_t n) noexcept {
  if (machine* const m = sched::this_machine()) {
    return sched::choose(*m->p, sched::choice::ready_case, n);
  }
  if (sched::simulation* const s = sched::this_simulation()) return s->choose(n);
  thread_local base::random random{reinterpret_cast<std::uintptr_t>(&random)};
  return random.below(n);
}

constinit std::atomic<std::uint32_t> simulations{0};

void observe_slow(touch how, const void* object, const char* what) noexcept {
  if (sched::simulation* const s = sched::this_simulation()) s->observe(how, object, what);
}

// Go's rule. If there is no other processor, or all others are idle, the holder of the lock is
// probably not running. And to spin does not pay if this processor has something else to run.
bool spin(int turn) noexcept {
  constexpr int turns = 4;
  constexpr int pauses = 10;
  if (turn >= turns) return false;
  machine* m = sched::this_machine();
  if (m == nullptr) {
    static const bool parallel = std::thread::hardware_concurrency() > 1;
    if (!parallel || sched::this_simulation() != nullptr) return false;
  } else {
    sched::expect_outside(m);
    // relaxed: hints.
    const std::uint32_t procs = sched::the_scheduler.procs.load(std::memory_order_relaxed);
    const std::uint32_t idle = sched::the_scheduler.idle_count.load(std::memory_order_relaxed);
    if (idle + 1 >= procs) return false;
    m = sched::enter(m);
    const bool has_work = sched::has_work(*m->p);
    sched::leave(m);
    if (has_work) return false;
  }
  for (int i = 0; i < pauses; ++i) base::pause();
  return true;
}

std::uint64_t thread_hint() noexcept {
  const machine* const m = sched::this_machine();
  const void* const me = m != nullptr ? static_cast<const void*>(m) : sched::this_thread_record();
  return (reinterpret_cast<std::uintptr_t>(me) * 0x9e3779b97f4a7c15u) >> 32;
}

void relax(int turn) noexcept {
  if (turn < 100) {
    base::pause();
  } else {
    base::yield_thread();
  }
}

}  // namespace weft::detail
