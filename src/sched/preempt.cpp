// preempt.cpp: pausing a hog: a goroutine that computes through its slice while others wait.
//
// Every machine has a timer on its own thread's CPU clock. When a goroutine has computed for half a
// slice and others wait, the monitor arms the timer for the rest. The timer goes off only on a
// thread that is using the CPU, and the kernel raises the signal on the way back to user code. So
// the signal never cuts a system call short. The handler parks the thread where it is, whatever
// that is, and passes the processor on. The goroutine notices nothing but the time that has passed.
//
// The handler needs nothing of the code that it interrupts. That code may be in malloc, hold a
// std::mutex, or have used up its stack (handlers run on the thread's alternate stack). The
// goroutine only has to wait for its turn. Others may have to wait for what it holds; so it gets
// its turn before long (order.hpp).
//
//     what the handler finds      and does
//     inside the runtime          returns: the plea on the seat's word will do (yield_please)
//     holds a lock of ours        returns, and tries again in a moment
//     has no processor any more   takes an idle one, or waits for one
//     has one, no other waits     goes on
//     has one, others wait        passes it on, waits for the next turn
//
// While the machine waits it is inside the runtime, asleep, with `taken` on its seat, and its
// goroutine is in a queue (mode paused, or bound). A machine that picks the goroutine grants its
// processor to the paused machine (ownership.hpp); there is one token for each grant.
//
// A paused goroutine keeps its thread, so another thread has to go on with the processor. If there
// is none and none can be made, the processor goes to the paused goroutine that has waited longest,
// which has its own thread. Goroutines without a thread wait until there is one.
//
// When the process ends, all paused machines go on: one of them may hold the lock of malloc, which
// destructors need.
// [PR1] A machine says that it is paused, and then looks whether the process ends. The machine that
// ends the process says so, and then looks which machines are paused.
// [PR2] listen_to_preemption_signal() -> the handler: the listener's own state.
#include "sched/preempt.hpp"

#include "base/backtrace.hpp"
#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/env.hpp"
#include "base/ignore_signal.hpp"
#include "base/kernel.hpp"
#include "base/signal.hpp"
#include "sched/all_timers.hpp"
#include "sched/counters.hpp"
#include "sched/handoff.hpp"
#include "sched/idle_list.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/order.hpp"
#include "sched/ownership.hpp"
#include "sched/report.hpp"
#include "sched/scheduler.hpp"
#include "sched/starter.hpp"
#include "sched/stop.hpp"
#include "sched/work.hpp"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

constexpr std::int64_t try_again_cpu_ns = 500'000;

int the_signal = 0;  // 0: nothing is paused. Written once, before the first machine.
struct sigaction previous;
std::atomic<signal_listener> listener{nullptr};  // for signals not ours; goes before `previous`

void never_lies_down() noexcept {}

void queue_paused(goroutine* g) noexcept {
  g->since_ns = base::now_ns();
  sched.global.push(global_queue::from::shared, g);
}

// Waits in the handler for the turn of `g`, which runs on `m`. Requires: inside, the seat given up,
// and `g` in a queue, where others find it.
void wait_for_turn(machine* m, goroutine* g) noexcept {
  WEFT_ASSERT(m->seat.inside_hint());
  m->is_paused.store(true, std::memory_order_seq_cst);                     // [PR1]
  const bool granted = !sched.stopping.load(std::memory_order_seq_cst) &&  // [PR1]
                       ownership::await_grant(m, &never_lies_down) != nullptr;
  m->is_paused.store(false, std::memory_order_release);  // [ST3] await_grant() has ended its sleep
  sched.paused_count.fetch_sub(1, std::memory_order_relaxed);
  if (!granted) return;  // the process ends: `g` goes on, for it may hold the lock of malloc
  WEFT_ASSERT(m->g == g && m->p != nullptr && g->bound == m);
  if (g->how == mode::paused) {
    g->how = mode::parked;
    g->bound = nullptr;
  }
  g->set_status(state::running);
  m->hog_picks.store(m->p->picks.load(std::memory_order_relaxed), std::memory_order_relaxed);
  the_counters.resume.add();
}

// Requires: inside, and the seat given up. `pleaded`: there was a plea to yield on the seat.
void pause_or_go_on(machine* m, bool pleaded) noexcept {
  goroutine* const g = m->g;
  departure left;
  goroutine* successor = nullptr;
  bool pauses = false;
  sched.lock.lock();
  processor* const p = m->p;
  if (p == nullptr &&
      (g->get_status() == state::blocking || ownership::acquire_locked(m, left.woken))) {
    // An announced call may compute, so it goes on. Any other goroutine has a processor again.
  } else if (p != nullptr &&
             (m->armed_p.load(std::memory_order_relaxed) != p ||
              m->armed_picks.load(std::memory_order_relaxed) !=
                  p->picks.load(std::memory_order_relaxed) ||
              is_any_idle() || (!others_want(*p) && earliest_timer_hint() > base::now_ns()))) {
    the_counters.preempt_stale.add();
  } else if (!has_thread_locked() &&
             (p != nullptr ? (successor = sched.global.take_with_own_thread()) == nullptr
                           : m->lent != nullptr)) {
    // Either no thread could go on with the processor, or, if it is lent, this goroutine would take
    // the last thread from its borrower.
    the_counters.preempt_refused.add();
  } else {
    pauses = true;
    WEFT_ASSERT(m->granted == nullptr && !m->searching);
    sched.paused_count.fetch_add(1, std::memory_order_relaxed);
    if (g->how != mode::bound) {
      g->how = mode::paused;
      g->bound = m;
    }
    g->set_status(state::preempted);
    if (p != nullptr) {
      ownership::lose_locked(m);
      queue_paused(g);
      // To the goroutine that has waited longest, perhaps `g` itself.
      left = ownership::after_passing_locked(*p, successor != nullptr
                                                     ? ownership::grant_turn_locked(p, successor)
                                                     : ownership::pass_on_locked(p));
      the_counters.pause_hog.add();
    } else {
      if (m->lent != nullptr) ownership::end_loan_locked(m);
      queue_paused(g);
      the_counters.pause_unattached.add();
    }
  }
  if (!pauses && m->p != nullptr) {
    ownership::keep_locked(m);
    if (pleaded) (void)m->seat.ask_to_yield();  // the goroutine still has to yield
  }
  sched.lock.unlock();
  left.finish();
  if (pauses) {
    // When `g` was queued, under the lock, no processor was idle. A machine that lies down later
    // looks at the queue.
    wait_for_turn(m, g);
  } else {
    note_activity();
  }
}

// The machine's CPU timer has gone off: the slice is over. Runs on the alternate stack, with every
// signal blocked.
void on_cpu_timer(machine* m, const void* ucontext) noexcept {
  m->armed_since_ns.store(0, std::memory_order_relaxed);
  if (m->g == nullptr || m->seat.inside_hint()) {
    the_counters.preempt_deferred.add();
    return;
  }
  if (m->holds_lock.load(std::memory_order_relaxed) != 0) {
    the_counters.preempt_deferred.add();
    arm_cpu_timer(m, try_again_cpu_ns);
    return;
  }
  if (m->wants_report.load(std::memory_order_relaxed)) {
    m->wants_report.store(false, std::memory_order_relaxed);
    report_stall(m, ucontext);
  }
  (void)m->seat.enter();
  bool pleaded = false;
  if (give_up_seat(m, &pleaded)) pause_or_go_on(m, pleaded);
  m->seat.leave();
}

// A system call, because the timers are the kernel's own: glibc's functions would do, but the
// handler need not rely on them.
WEFT_NO_TSAN int set_timer(int id, std::int64_t cpu_ns) noexcept {
  itimerspec once{};
  once.it_value.tv_sec = static_cast<time_t>(cpu_ns / 1'000'000'000);
  once.it_value.tv_nsec = static_cast<long>(cpu_ns % 1'000'000'000);
  return static_cast<int>(::syscall(SYS_timer_settime, id, 0, &once, nullptr));
}

void forward(int signal, siginfo_t* info, void* ucontext) {
  if (const signal_listener l = listener.load(std::memory_order_acquire)) {  // [PR2]
    l(signal, info, ucontext);
  } else if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, info, ucontext);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  }
}

// Not instrumented: the signal may have interrupted ThreadSanitizer's own code, which may hold
// locks that the instrumented runtime needs. Anywhere else its state is consistent.
WEFT_NO_TSAN void on_signal(int signal, siginfo_t* info, void* ucontext) {
  const int saved = errno;
  machine* const m = this_machine();
  if (info->si_code != SI_TIMER || m == nullptr || info->si_value.sival_ptr != m) {
    forward(signal, info, ucontext);
  } else {
    if (base::sanitizer::is_thread && interrupts_libraries(base::interrupted_pc(ucontext))) {
      set_timer(m->cpu_timer.load(std::memory_order_relaxed), try_again_cpu_ns);
    } else {
      on_cpu_timer(m, ucontext);
    }
  }
  errno = saved;
}

}  // namespace

void install_preemption() noexcept {
  const base::settings& settings = base::env();
  sched.slice_ns.store(settings.slice.count(), std::memory_order_relaxed);
  // Before 5.9 the kernel raises the signal from its tick, and so may cut short the next call that
  // sleeps.
  if (settings.async_preempt_off || !base::kernel_at_least(5, 9)) return;
  if (base::sanitizer::is_thread && !base::sanitizer::is_shared) return;  // cannot tell where it is
  the_signal = settings.preempt_signal != 0 ? settings.preempt_signal : SIGURG;
  if (!base::install_handler(the_signal, &on_signal, &previous)) the_signal = 0;
}

bool can_pause() noexcept { return the_signal != 0; }

bool is_preemption_signal(int signal) noexcept { return signal == the_signal; }

bool listen_to_preemption_signal(int signal, signal_listener l) noexcept {
  if (signal != the_signal) return false;
  listener.store(l, std::memory_order_release);  // [PR2]
  return true;
}

bool is_only_ours(int signal, const struct sigaction& action) noexcept {
  if (signal == SIGPIPE && action.sa_handler == &base::ignore_signal) return true;
  return signal == the_signal && action.sa_sigaction == &on_signal &&
         listener.load(std::memory_order_relaxed) == nullptr &&
         (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN);
}

void make_cpu_timer(machine* m) noexcept {
  if (the_signal == 0) return;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = the_signal;
  event.sigev_value.sival_ptr = m;
  event._sigev_un._tid = ::gettid();
  int id = -1;
  const int saved = errno;
  // The kernel refuses if there are too many timers. Then this machine's goroutines are not paused.
  if (::syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &id) != 0) id = -1;
  errno = saved;
  m->cpu_timer.store(id, std::memory_order_relaxed);
}

void delete_cpu_timer(machine* m) noexcept {
  const int id = m->cpu_timer.exchange(-1, std::memory_order_relaxed);
  if (id >= 0) ::syscall(SYS_timer_delete, id);
}

// The thread may have ended meanwhile, and another machine may have got the number of its timer.
// Then the handler of that machine finds out that there is nothing to do.
void arm_cpu_timer(machine* m, std::int64_t cpu_ns) noexcept {
  const int id = m->cpu_timer.load(std::memory_order_relaxed);
  if (id < 0) return;
  const int saved = errno;
  set_timer(id, cpu_ns);
  errno = saved;
}

void release_paused() noexcept {
  for (const auto& slot : sched.machine_table) {
    machine* const m = slot.load(std::memory_order_acquire);  // [MT1]
    if (m == nullptr) break;
    if (m->is_paused.load(std::memory_order_acquire)) m->sleep.wake();  // [PR1]
  }
}

}  // namespace weft::sched
