// preempt.cpp: pausing a hog: a goroutine that computes through its slice while others wait.
//
// Every machine has a timer on its own thread's CPU clock. When a goroutine has computed for half a
// slice and others wait, the monitor arms it for the rest. It goes off only on a thread that is
// using the CPU, and the kernel raises the signal on the way back to user code: so no system call
// is ever cut short by it. The handler parks the thread where it is, whatever that is, and passes
// the processor on; to the goroutine nothing has happened but time. It needs nothing of the code it
// interrupts: that may be in malloc, hold a std::mutex, or have used up its stack (handlers run on
// the thread's alternate one). It only has to wait its turn, and others may have to wait for what
// it holds; so it gets one (order.hpp) before long.
//
//     machine                     owner's thread only; `inside` is the seat's flag
//     inside                      return: the word on the seat will do (yield_please)
//     holds a lock of ours        return, and try again in a moment
//     has no processor any more   wait for one
//     has one, nobody waits       go on
//     has one, others wait        pass it on, wait for the next turn
//
// While it waits it is inside, asleep, with `taken` on its seat, and its goroutine is in a queue
// (mode paused, or bound). Whoever picks the goroutine grants the machine a processor
// (handoff.cpp); one token for each grant.
//
// A paused goroutine keeps its thread, so another thread has to go on with the processor. If there
// is none and none can be had, the processor goes to the paused goroutine that has waited longest,
// which has its own; those that have no thread wait until there is one.
//
// When the process ends, all are let go: one may hold the lock of malloc, which destructors need.
// [PR1] A machine says that it is paused, then looks whether the process ends; who ends it says so,
// then looks who is paused.
#include "sched/preempt.hpp"

#include "base/backtrace.hpp"
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

int the_signal = 0;  // 0: no pausing. Written once, before the first machine.
struct sigaction previous;
std::atomic<signal_listener> listener{nullptr};  // of what is not ours; before `previous`

void never_lies_down() noexcept {}

void queue_paused(goroutine* g) noexcept {
  g->since_ns = base::now_ns();
  sched.global.push(global_queue::from::shared, g);
}

// The goroutine of this machine waits for its turn, in the handler. Requires: inside, its seat
// given up, the goroutine to be found in a queue.
void wait_for_turn(machine* m, goroutine* g) noexcept {
  m->is_paused.store(true, std::memory_order_seq_cst);                     // [PR1]
  const bool granted = !sched.stopping.load(std::memory_order_seq_cst) &&  // [PR1]
                       ownership::await_grant(m, &never_lies_down) != nullptr;
  m->is_paused.store(false, std::memory_order_relaxed);
  sched.paused_count.fetch_sub(1, std::memory_order_relaxed);
  if (!granted) return;  // the process ends; malloc must be usable until then
  if (g->how == mode::paused) {
    g->how = mode::parked;
    g->bound = nullptr;
  }
  g->set_status(state::running);
  m->hog_picks.store(m->p->picks.load(std::memory_order_relaxed), std::memory_order_relaxed);
  the_counters.resume.add();
}

// Requires: inside, and its seat given up, on which there was a plea to yield or not.
void pause_or_go_on(machine* m, bool pleaded) noexcept {
  goroutine* const g = m->g;
  departure left;
  goroutine* successor = nullptr;
  bool pauses = false;
  sched.lock.lock();
  processor* const p = m->p;
  if (p == nullptr &&
      (g->get_status() == state::blocking || ownership::acquire_locked(m, left.woken))) {
    // In a call that was announced it may compute; and now it has a processor again.
  } else if (p != nullptr &&
             (m->armed_p.load(std::memory_order_relaxed) != p ||
              m->armed_picks.load(std::memory_order_relaxed) !=
                  p->picks.load(std::memory_order_relaxed) ||
              is_any_idle() || (!others_want(*p) && earliest_timer_hint() > base::now_ns()))) {
    the_counters.preempt_stale.add();
  } else if (!has_thread_locked() &&
             (p != nullptr ? (successor = sched.global.take_with_own_thread()) == nullptr
                           : m->lent != nullptr)) {
    // No thread could go on with the processor; or its borrower would take the last one.
    the_counters.preempt_refused.add();
  } else {
    pauses = true;
    sched.paused_count.fetch_add(1, std::memory_order_relaxed);
    if (g->how != mode::bound) {
      g->how = mode::paused;
      g->bound = m;
    }
    g->set_status(state::preempted);
    if (p != nullptr) {
      ownership::lose_locked(m);
      queue_paused(g);
      // To whom has waited longest; perhaps itself.
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
    if (pleaded) (void)m->seat.ask_to_yield();  // it still has to
  }
  sched.lock.unlock();
  left.finish();
  if (pauses) {
    // Nobody else was idle, under the lock; who lies down later looks at the queue.
    wait_for_turn(m, g);
  } else {
    note_activity();
  }
}

// The slice is over. Runs on the alternate stack, with every signal blocked.
void end_slice(machine* m, const void* ucontext) noexcept {
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

// The kernel's own timers: glibc's functions for them would do, but need not be trusted with it.
WEFT_NO_TSAN int set_timer(int id, std::int64_t cpu_ns) noexcept {
  itimerspec once{};
  once.it_value.tv_sec = static_cast<time_t>(cpu_ns / 1'000'000'000);
  once.it_value.tv_nsec = static_cast<long>(cpu_ns % 1'000'000'000);
  return static_cast<int>(::syscall(SYS_timer_settime, id, 0, &once, nullptr));
}

void forward(int signal, siginfo_t* info, void* ucontext) {
  if (const signal_listener l = listener.load(std::memory_order_acquire)) {
    l(signal, info, ucontext);
  } else if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, info, ucontext);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  }
}

// Not instrumented: ThreadSanitizer's own code may have been interrupted, and may hold its locks,
// which the instrumented runtime needs. Outside of it, and of what it calls, all is consistent.
WEFT_NO_TSAN void on_signal(int signal, siginfo_t* info, void* ucontext) {
  const int saved = errno;
  machine* const m = this_machine();
  if (info->si_code != SI_TIMER || m == nullptr || info->si_value.sival_ptr != m) {
    forward(signal, info, ucontext);
  } else {
    if (base::sanitizer::is_thread && interrupts_libraries(base::interrupted_pc(ucontext))) {
      set_timer(m->cpu_timer.load(std::memory_order_relaxed), try_again_cpu_ns);
    } else {
      end_slice(m, ucontext);
    }
  }
  errno = saved;
}

}  // namespace

void install_preemption() noexcept {
  const base::settings& settings = base::env();
  sched.slice_ns.store(settings.slice.count(), std::memory_order_relaxed);
  // Before 5.9 the kernel raises the signal from its tick, and a call that sleeps next is cut
  // short.
  if (settings.async_preempt_off || !base::kernel_at_least(5, 9)) return;
  if (base::sanitizer::is_thread && !base::sanitizer::is_shared) return;  // cannot tell where it is
  the_signal = settings.preempt_signal != 0 ? settings.preempt_signal : SIGURG;
  if (!base::install_handler(the_signal, &on_signal, &previous)) the_signal = 0;
}

bool can_pause() noexcept { return the_signal != 0; }

bool is_preemption_signal(int signal) noexcept { return signal == the_signal; }

bool listen_to_preemption_signal(int signal, signal_listener l) noexcept {
  if (signal != the_signal) return false;
  listener.store(l, std::memory_order_release);  // the listener's own state is there
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
  // Refused, where there are too many: then this machine's goroutines are not paused.
  if (::syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &id) != 0) id = -1;
  errno = saved;
  m->cpu_timer.store(id, std::memory_order_relaxed);
}

void delete_cpu_timer(machine* m) noexcept {
  const int id = m->cpu_timer.exchange(-1, std::memory_order_relaxed);
  if (id >= 0) ::syscall(SYS_timer_delete, id);
}

// The thread may have ended meanwhile, and the number be another's: that one's handler finds out.
void arm_cpu_timer(machine* m, std::int64_t cpu_ns) noexcept {
  const int id = m->cpu_timer.load(std::memory_order_relaxed);
  if (id < 0) return;
  const int saved = errno;
  set_timer(id, cpu_ns);
  errno = saved;
}

void release_paused() noexcept {
  for (const auto& slot : sched.machine_table) {
    machine* const m = slot.load(std::memory_order_acquire);
    if (m == nullptr) break;
    if (m->is_paused.load(std::memory_order_acquire)) m->sleep.wake();  // [PR1]
  }
}

}  // namespace weft::sched
