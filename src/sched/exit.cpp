// exit.cpp: what still runs while the process exits.
//
// Once the machines have stopped (stop.cpp), static objects are destroyed. Their destructors and
// the exit handlers may use weft like any other code: start goroutines, wait for them, sleep. One
// thread is left to do all that, the one that called exit. It has a machine and a processor of its
// own:
//
//   exit was called in a goroutine  the goroutine stays on its machine. When it waits, the machine
//                                   runs others, as always.
//   exit was called by a thread     the thread is adopted. While it waits in weft it is a machine:
//                                   it runs goroutines until one of them, a timer or another
//                                   thread has made it ready. Meanwhile its record is of the mode
//                                   `paused`: the machine that picks it returns to the thread.
//
// E1  A goroutine that was there before the stop never runs again: its mode is `stopped`. It is not
//     queued any more; if it was in a queue already, it is dropped when it is picked. The same goes
//     for functions that timers were to call (time/timer.cpp).
//     An exception: a goroutine that blocked in a system call which was not announced goes on when
//     the call returns, until it next enters the runtime (stop.cpp).
// E2  If nothing is left that could end the wait of the exiting thread, the wait is given up: exit
//     is called once more, which goes on with the handlers and destructors that remain. What could
//     end the wait is known, except that plain threads might do so at any time: they get
//     `foreign_wait_ns`.
//
// To call exit() inside an exit handler is not in the standard, but glibc takes each handler from
// the list before it calls it. The destructor that waited does not end, and the record of its
// goroutine or thread stays `stopped`.
#include "sched/exit.hpp"

#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "base/futex.hpp"
#include "base/signal_stack.hpp"
#include "sched/all_timers.hpp"
#include "sched/deadlock.hpp"
#include "sched/enter.hpp"
#include "sched/handoff.hpp"
#include "sched/machine_thread.hpp"
#include "sched/order.hpp"
#include "sched/ownership.hpp"
#include "sched/plain_thread.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/wake.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <new>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

constexpr std::int64_t foreign_wait_ns = 5'000'000'000;
constexpr std::int64_t nap_min_ns = 50'000;
constexpr std::int64_t nap_max_ns = 2'000'000;

int exit_status = 0;
goroutine* exiting_goroutine = nullptr;  // the goroutine that exits, or the thread's record

// From now on the calling thread, a plain one, runs goroutines on `m` while it waits.
void bind_thread(machine* m) noexcept {
  goroutine* self = this_thread_record();
  if (self->how == mode::stopped) self = renew_thread_record();
  self->how = mode::paused;
  self->bound = m;
  exiting_goroutine = self;
}

// Returns: a processor that no machine uses any more. Waits, because a machine that has just woken
// up may not have noticed yet that it is to stop.
processor* find_processor() noexcept {
  for (std::uint32_t i = 0;; i = (i + 1) % sched.procs_made.load(std::memory_order_relaxed)) {
    processor* const p = sched.processors[i].load(std::memory_order_relaxed);
    const machine* const holder = p->holder.load(std::memory_order_acquire);  // [OW1]
    if (holder == nullptr || holder->is_away()) return p;
    base::yield_thread();
  }
}

void take_processor(machine* m) noexcept {
  (void)m->seat.enter();
  const bool has_none = settle_here(m) == seat::taken || m->p == nullptr;
  if (has_none && !ownership::acquire(m)) {
    processor* const p = find_processor();
    const std::lock_guard hold(sched.lock);
    ownership::seize_locked(m, p);
  }
  {
    const std::lock_guard hold(sched.lock);
    ownership::end_loan_of_locked(*m->p);
    m->p->retiring.store(false, std::memory_order_relaxed);
  }
  leave(m);
}

// Not instrumented: the thread that wrote the record last was stopped wherever it was.
WEFT_NO_TSAN void forget(goroutine& g) noexcept {
  const state s = g.get_status();
  if (s != state::unused) g.how = mode::stopped;
}

// E1
void forget_goroutines(const goroutine* self) noexcept {
  sched.records.for_each([self](goroutine& g) {
    if (&g != self) forget(g);
  });
  the_poller.forget_stopped();
}

bool could_go_on() noexcept {
  if (the_poller.is_waited_for()) return true;
  const std::uint32_t procs = sched.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < procs; ++i) {
    if (sched.processors[i].load(std::memory_order_relaxed)->timers.could_wake()) return true;
  }
  return false;
}

// E2. Runs on the thread's own stack, inside.
[[noreturn]] void give_up(machine* m) noexcept {
  base::text line;
  line << "exit: gave up a wait ("
       << detail::to_string(exiting_goroutine->reason.load(std::memory_order_relaxed))
       << ") that only goroutines which the exit has stopped could have ended; going on without it";
  base::warn(line.view());
  // The record is still in the queue of what it waited for. A late wake-up must not wake it.
  exiting_goroutine->how = mode::stopped;
  *m->eh = {};
  leave(m);
  be_machine(nullptr);
  bind_thread(m);
  std::exit(exit_status);
}

// Sleeps until `until_ns`, or until an event.
void nap(processor& p, std::int64_t until_ns) noexcept {
  if (the_poller.try_attend()) {
    goroutine_list found;
    the_poller.poll(until_ns, found);
    the_poller.leave();
    while (goroutine* const g = found.pop_front()) push_woken(p, g);
    return;
  }
  const timespec until{until_ns / 1'000'000'000, until_ns % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

}  // namespace

bool is_exiting(const machine* m) noexcept {
  return sched.exiting.load(std::memory_order_relaxed) == m;
}

bool runs_at_exit() noexcept {
  const machine* const m = this_machine();
  return sched.stopping.load(std::memory_order_relaxed) && (m == nullptr || is_exiting(m));
}

void begin_exit(machine* self, int status) noexcept {
  exit_status = status;
  forget_goroutines(self != nullptr ? self->g : nullptr);
  machine* const m = self != nullptr ? self : adopt_thread();
  if (m == nullptr) return;                           // no memory; destructors must not wait then
  m->holds_lock.store(1, std::memory_order_relaxed);  // never paused
  sched.exiting.store(m, std::memory_order_relaxed);
  take_processor(m);
  sched.procs.store(1, std::memory_order_relaxed);
  (void)sched.idle.try_search(processors_max);  // never ended, so that new work wakes no machine
  if (self != nullptr) {
    exiting_goroutine = self->g;
    // All goroutines run on this thread now, so it need not be bound.
    if (self->g->how == mode::bound) self->g->how = mode::parked;
    self->locks = 0;
    return;
  }
  alignas(base::signal_stack) static std::byte alternate[sizeof(base::signal_stack)];
  ::new (alternate) base::signal_stack;  // never destroyed: goroutines may overflow here, too
  bind_thread(m);
}

bool yield_at_exit() noexcept {
  goroutine* const self = this_thread_record();
  if (self->how != mode::paused) return false;
  self->set_status(state::runnable);
  inject(global_queue::from::shared, self);
  run_until_ready(self);
  return true;
}

goroutine* find_at_exit(machine* m) noexcept {
  processor& p = *m->p;
  const std::int64_t begin = base::now_ns();
  for (std::int64_t nap_ns = nap_min_ns;; nap_ns = std::min(2 * nap_ns, nap_max_ns)) {
    const std::int64_t now = base::now_ns();
    run_timers(now);
    if (goroutine* const g = pick(p)) return g;
    if (!could_go_on() && (now - begin >= foreign_wait_ns || !has_foreign_threads())) {
      // A thread that has ended since then may have readied a goroutine before.
      if (goroutine* const g = pick(p)) return g;
      give_up(m);
    }
    nap(p, std::min(now + nap_ns, std::max(earliest_timer_hint(), now)));
  }
}

}  // namespace weft::sched
