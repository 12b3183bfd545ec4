// machine_thread.cpp: the life of a machine's thread.
//
// A machine's thread runs machine_main on its own stack: it looks for a goroutine, switches to it,
// and comes back when there is nothing more to run here, or a goroutine has left it an errand.
//
// find_work() decides what the thread does next. An errand goes first. A machine without a
// processor sleeps as a spare one (spare.hpp). A machine with a processor picks a goroutine
// (order.hpp); if there is none, it returns a borrowed processor, or searches (search.hpp), or at
// last sleeps with its processor (sleep.hpp).
//
// Memory order:
//   [MT1] making of a machine's record (release) -> a scan of the table of machines (acquire): the
//         record.
#include "sched/machine_thread.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/kernel.hpp"
#include "base/signal_stack.hpp"
#include "sched/counters.hpp"
#include "sched/exit.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/order.hpp"
#include "sched/ownership.hpp"
#include "sched/preempt.hpp"
#include "sched/scheduler.hpp"
#include "sched/search.hpp"
#include "sched/sleep.hpp"
#include "sched/spare.hpp"
#include "sched/start.hpp"
#include "sched/starter.hpp"
#include "sched/switch.hpp"
#include "sched/wake.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <cxxabi.h>
#include <mutex>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

// used: link-time optimisation does not see that assembly reads it.
[[gnu::used]] constinit thread_local weft::sched::machine* weft_this_machine = nullptr;

namespace weft::sched {

constinit scheduler the_scheduler;
constinit counters the_counters;

namespace {

scheduler& sched = the_scheduler;

std::size_t thread_stack_bytes() noexcept {
  return base::sanitizer::is_watched() ? 1 << 20 : 128 << 10;
}

constexpr std::int64_t shortage_told_ns = 3'000'000'000;
constexpr int stackless_most = 100;  // how many goroutines to try, to find one that has a stack

sigset_t machine_signals;  // the signal mask of the thread that started the runtime

void note_thread(machine* m) noexcept {
  m->errno_address = &errno;
  m->eh = reinterpret_cast<exception_globals*>(abi::__cxa_get_globals());
  m->fp.capture();
  m->thread_id.store(::gettid(), std::memory_order_relaxed);
  if (base::sanitizer::has_address()) {
    pthread_attr_t attributes;
    WEFT_CHECK(::pthread_getattr_np(::pthread_self(), &attributes) == 0);
    void* low = nullptr;
    ::pthread_attr_getstack(&attributes, &low, &m->stack_bytes);
    ::pthread_attr_destroy(&attributes);
    m->stack_low = static_cast<std::byte*>(low);
  }
#if WEFT_TSAN
  m->fiber = base::sanitizer::current_fiber();
#endif
}

// Sleeps while the goroutine bound to this machine waits, until the machine that picks it grants a
// processor. There is one token for each grant, consumed here and nowhere else (or in preempt.cpp).
goroutine* wait_bound(machine* m) noexcept {
  the_counters.handoff_bound.add();
  if (m->p != nullptr) ownership::pass_on_own(m);
  goroutine* const g = ownership::await_grant(m, &suspect_deadlock);
  if (sched.stopping.load(std::memory_order_relaxed)) stop_here();
  WEFT_CHECK(g != nullptr && g == m->errand_goroutine);
  return g;
}

// Whether any goroutine has a stack. It will give that back some day.
bool somebody_has_a_stack() noexcept {
  bool found = false;
  sched.records.for_each([&](const goroutine& g) {
    const state s = g.get_status();
    found = found || (s != state::unused && has_run(&g));
  });
  return found;
}

// `g` needs a stack and there is no memory for one: it goes to the end of the queue until others
// have given theirs back. Leaves another goroutine to run in m->task, if there is one.
void await_stack(machine* m, goroutine* g) noexcept {
  static constinit std::atomic<bool> told{false};
  static constinit std::atomic<std::int64_t> told_again_ns{0};  // relaxed: one machine tells
  sched.stack_shortage.store(true, std::memory_order_relaxed);
  if (!told.exchange(true, std::memory_order_relaxed)) {
    base::warn("no memory for a goroutine's stack; goroutines wait until others have ended");
  }
  const std::int64_t now = base::now_ns();
  if (m->short_since_ns == 0) m->short_since_ns = now;
  if (now - m->short_since_ns > shortage_told_ns) {
    m->short_since_ns = now;
    std::int64_t last = told_again_ns.load(std::memory_order_relaxed);
    if (now - last > shortage_told_ns && !somebody_has_a_stack() &&
        told_again_ns.compare_exchange_strong(last, now, std::memory_order_relaxed)) {
      base::warn("no memory for the stack of any goroutine; all wait until the program frees some");
    }
  }
  // `g` goes to the end of the line, and so does each one picked after it that needs a stack, too.
  for (int turn = 0; g != nullptr; ++turn) {
    g->since_ns = now;
    sched.global.push(global_queue::from::shared, g);
    if (turn == stackless_most) break;
    g = pick(*m->p);
    if (g != nullptr && has_run(g)) {
      m->task = errand::run;
      m->errand_goroutine = g;
      return;
    }
  }
  const timespec pause{0, 1'000'000};
  const int saved = errno;
  {
    const asleep mark(m);
    ::nanosleep(&pause, nullptr);
  }
  errno = saved;
}

// Returns: a goroutine that can run here and now, or null if the thread should end.
goroutine* find_work(machine* m) noexcept {
  for (;;) {
    goroutine* g = nullptr;
    const bool exits = sched.stopping.load(std::memory_order_relaxed);
    if (exits && !is_exiting(m)) stop_here();
    // relaxed: the monitor writes it while a hog runs here.
    if (m->has_long_slice.load(std::memory_order_relaxed)) {
      m->has_long_slice.store(false, std::memory_order_relaxed);
      const int saved = errno;
      base::ask_for_slice(0, slice_of_thread_ns);
      errno = saved;
    }
    const errand task = std::exchange(m->task, errand::none);
    if (task == errand::run) {
      g = m->errand_goroutine;
    } else if (task == errand::wait_bound) {
      g = wait_bound(m);
    } else if (m->p == nullptr) {
      m->short_since_ns = 0;
      if (!sleep_spare(m)) return nullptr;
      continue;
    } else if (m->p->retiring.load(std::memory_order_relaxed)) {
      ownership::pass_on_own(m);
      continue;
    } else {
      g = pick(*m->p);
      // relaxed: no loan begins while this machine holds p; return_own() looks again under the
      // lock.
      if (g == nullptr && m->p->lender.load(std::memory_order_relaxed) != nullptr &&
          ownership::return_own(m)) {
        continue;
      }
      if (g == nullptr) g = exits ? find_at_exit(m) : search(m);
    }
    if (g == nullptr) {
      m->short_since_ns = 0;
      if (!sleep_idle(m)) return nullptr;
      continue;
    }
    m->dozed = false;
    if (g->how == mode::stopped) continue;
    if (exits && g->how == mode::paused) return nullptr;  // run_until_ready()
    if (g->how == mode::paused || (g->how == mode::bound && g->bound != m)) {
      ownership::grant_own(m, g);
      continue;
    }
    if (has_run(g)) {
      await_saved(g);
    } else if (prepare_to_run(m, g)) {
      m->short_since_ns = 0;
    } else {
      await_stack(m, g);
      continue;
    }
    (void)end_search(m);
    work_made(m);  // idle_state.hpp, I2: passes the search on
    return g;
  }
}

machine* take_record() noexcept {
  const std::lock_guard hold(sched.lock);
  if (sched.machines == machines_max) return nullptr;
  machine* m = sched.free_machines.pop_front();
  if (m == nullptr) {
    const int saved = errno;
    void* const memory = ::mmap(nullptr, sizeof(machine), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    if (memory == MAP_FAILED) return nullptr;
    m = ::new (memory) machine;
    sched.machine_table[sched.machines_made++].store(m, std::memory_order_release);  // [MT1]
  }
  m->is_live = true;
  ++sched.threads_coming;
  ++sched.machines;
  return m;
}

void return_record(machine* m) noexcept {
  const std::lock_guard hold(sched.lock);
  m->is_live = false;
  m->is_asleep.store(true, std::memory_order_release);  // [ST2] [E2]
  m->task = errand::none;
  m->gave_away = false;
  m->armed_since_ns.store(0, std::memory_order_relaxed);
  m->wants_report.store(false, std::memory_order_relaxed);
  m->armed_p.store(nullptr, std::memory_order_relaxed);
  m->short_since_ns = 0;
  m->locks = 0;
  sched.free_machines.push_front(m);
  --sched.machines;
}

// Runs goroutines until the thread should end.
void run_machine(machine* m) noexcept {
  while (goroutine* const g = find_work(m)) {
    run_goroutine(m, g);
    if (m->errand_stack != nullptr) {
      stack::central().put(&m->errand_stack, 1);
      m->errand_stack = nullptr;
    }
    if (m->task == errand::end_bound) {
      ownership::pass_on_own(m);
      return;
    }
  }
}

// Takes the seat for a new thread, and a processor if one still waits for a thread.
void sit_down(machine* m) noexcept {
  // Set until now, because there was no thread. [ST1] [E1]
  m->is_asleep.store(false, std::memory_order_release);
  if (!m->seat.enter()) {
    // The seat may still have a question or a plea on it, meant for a thread that has ended.
    while (m->seat.settle() != seat::free) {
      if (sched.stopping.load(std::memory_order_relaxed)) stop_here();
      m->seat.reclaim();
      m->seat.forget_plea();
      base::pause();
    }
  }
  sched.lock.lock();
  --sched.threads_coming;
  m->searching = false;
  if (processor* const p = take_starting_locked()) ownership::hold_locked(m, p);
  sched.lock.unlock();
}

void* machine_main(void* argument) {
  machine* const m = static_cast<machine*>(argument);
  const base::signal_stack alternate;
  weft_this_machine = m;
  note_thread(m);
  base::ask_for_slice(0, slice_of_thread_ns);
  make_cpu_timer(m);
  ::pthread_sigmask(SIG_SETMASK, &machine_signals, nullptr);
  sit_down(m);
  note_activity();
  run_machine(m);
  // From here on this is a plain thread.
  delete_cpu_timer(m);
  m->seat.leave();
  weft_this_machine = nullptr;
  return_record(m);
  suspect_deadlock();
  return nullptr;
}

int start_thread(const char* name, void* (*main)(void*), void* argument,
                 std::size_t stack_bytes) noexcept {
  // The new thread begins with every signal blocked, and unblocks them when it is ready.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread;
  const int error = ::pthread_create(&thread, &attributes, main, argument);
  ::pthread_attr_destroy(&attributes);
  if (error == 0) ::pthread_setname_np(thread, name);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace

int start_machine() noexcept {
  machine* const m = take_record();
  if (m == nullptr) return EAGAIN;
  const int error = start_thread("weft", &machine_main, m, thread_stack_bytes());
  if (error != 0) {
    sched.lock.lock();
    --sched.threads_coming;
    sched.lock.unlock();
    return_record(m);
  }
  return error;
}

machine* adopt_thread() noexcept {
  machine* const m = take_record();
  if (m == nullptr) return nullptr;
  sched.lock.lock();
  --sched.threads_coming;
  sched.lock.unlock();
  m->is_asleep.store(false, std::memory_order_release);  // [ST1] [E1]
  m->seat.stay_open();  // the record may be of a thread that has ended; its seat was stopped, too
  note_thread(m);
  return m;
}

void be_machine(machine* m) noexcept { weft_this_machine = m; }

void run_until_ready(goroutine* self) noexcept {
  machine* const m = self->bound;
  const exception_globals handled = *m->eh;
  const int saved = errno;
  m->fp.capture();
  be_machine(m);
  (void)m->seat.enter();
  run_machine(m);
  self->set_status(state::running);
  m->seat.leave();
  be_machine(nullptr);
  *m->eh = handled;
  errno = saved;
}

void keep_signal_mask() noexcept { ::pthread_sigmask(SIG_SETMASK, nullptr, &machine_signals); }

int start_service(const char* name, void* (*main)(void*)) noexcept {
  const int error = start_thread(name, main, nullptr, thread_stack_bytes());
  if (error == 0) sched.services.fetch_add(1, std::memory_order_relaxed);
  return error;
}

}  // namespace weft::sched
