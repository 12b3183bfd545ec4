// start.cpp: how the runtime begins, at the first use, and how it ends with the process.
//
// Ending: when the process exits, goroutines are stopped before static objects are destroyed. They
// are neither unwound nor waited for. Every machine stops at its next entry into the runtime. One
// that computes is stopped by a signal, unless it is inside the C library or the loader, where it
// may hold a lock that the exiting thread is going to need (stop.cpp). exit() calls handlers in the
// reverse order of registration, so the handler is registered at the start, and again each time
// run() returns.
//
// fork: a child has only the thread that called fork. The child may exec or _exit; the first use of
// weft in it is fatal, and the message says so.
#include "sched/start.hpp"
#include "base/cpu_limit.hpp"
#include "base/env.hpp"
#include "base/membarrier.hpp"
#include "sched/machine_thread.hpp"
#include "sched/monitor.hpp"
#include "sched/preempt.hpp"
#include "sched/report.hpp"
#include "sched/resize.hpp"
#include "sched/scheduler.hpp"
#include "sched/starter.hpp"
#include "sched/stop.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

std::mutex start_mutex;
std::atomic<bool> started{false};  // [B1] start() -> everyone: the runtime's records
std::atomic<bool> forked{false};   // this process is a child without a runtime

// The right to start the runtime. A signal handler may want it on the thread that has it or is
// about to get it. That would wait for ever, so the program dies instead.
class start_turn {
 public:
  start_turn() {
    if (is_mine) die_in_handler();
    is_mine = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    start_mutex.lock();
  }
  start_turn(const start_turn&) = delete;
  start_turn& operator=(const start_turn&) = delete;
  ~start_turn() {
    start_mutex.unlock();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    is_mine = false;
  }

 private:
  static constinit thread_local volatile bool is_mine;
};
constinit thread_local volatile bool start_turn::is_mine = false;

void stop_goroutines(int status, void*) noexcept {
  if (forked.load(std::memory_order_relaxed)) return;
  // A goroutine is dying with a report. The process ends after that report, not by this exit.
  base::await_last_words();
  if (sched.stopping.load(std::memory_order_relaxed)) return;
  stop_machines(status);
}

void after_fork_in_child() noexcept {
  // Only this thread exists. If it is a machine, it must not wait for others.
  forked.store(true, std::memory_order_relaxed);
  for (const auto& slot : sched.machine_table) {
    machine* const m = slot.load(std::memory_order_relaxed);
    if (m == nullptr) break;
    m->seat.stop();
  }
}

void start() {
  base::load_env();
  base::prepare_membarrier();
  keep_signal_mask();
  install_reports();
  prepare_stop();
  install_preemption();
  sched.cores.store(std::thread::hardware_concurrency(), std::memory_order_relaxed);

  const base::settings& settings = base::env();
  if (settings.max_procs != 0) {
    resize_by_hand(static_cast<std::uint32_t>(settings.max_procs));
  } else {
    resize(static_cast<std::uint32_t>(base::default_procs()));
  }
  if (sched.procs.load(std::memory_order_relaxed) == 0) {
    throw std::system_error(ENOMEM, std::generic_category(), "weft: no memory for a processor");
  }
  if (const int error = start_machine()) {
    throw std::system_error(error, std::generic_category(), "weft: cannot start a thread");
  }
  if (start_starter() != 0 || start_monitor() != 0) {
    base::warn("cannot start the service threads; carrying on with a single machine");
  }
  ::pthread_atfork(nullptr, nullptr, &after_fork_in_child);
  register_exit_again();
}

// While a thread has an object to destroy at its end, the loader keeps the library of that object.
struct anchor {
  [[gnu::noinline]] ~anchor() { asm volatile(""); }
};

}  // namespace

void ensure_started() {
  if (started.load(std::memory_order_acquire)) [[likely]] {  // [B1]
    if (forked.load(std::memory_order_relaxed)) [[unlikely]]
      stop_here();
    return;
  }
  {
    const start_turn one;
    if (started.load(std::memory_order_relaxed)) return;
    start();
    started.store(true, std::memory_order_release);  // [B1]
  }
  stay_loaded();  // until the starter has called it, too
}

void stay_loaded() noexcept {
  thread_local const anchor here;
  asm volatile("" : : "r"(&here));
}

bool is_forked_child() noexcept { return forked.load(std::memory_order_relaxed); }

// on_exit, because unlike atexit it tells the status.
void register_exit_again() noexcept { ::on_exit(&stop_goroutines, nullptr); }

void stop_here() noexcept {
  if (is_forked_child()) {
    base::set_fatal_hook(nullptr);
    base::fatal(
        "weft was used in the child of a fork(); such a child has no runtime and may only exec or "
        "_exit");
  }
  if (machine* const m = this_machine()) {
    m->has_stopped.store(true, std::memory_order_release);  // [ST2] [E2]
  }
  for (;;) ::pause();
}

}  // namespace weft::sched
