// deadlock.cpp: finds out that no goroutine will ever run again.
//
// The monitor asks when a thread has lain down without a deadline while weft::run is on. The answer
// must never be a false yes. So everything that could wake a goroutine has to be known to be asleep
// at one instant:
//
//   machines        each of them sleeps without a deadline and has no token; so no goroutine runs,
//                   and none is in a blocking call
//   queues, timers  are empty
//   descriptors     no goroutine waits for one
//   services        have no goroutine to wake
//   plain threads   the process has no threads but ours and those that wait in weft, without a
//                   deadline
//   signals         the program has no handler for one that comes from outside
//
// A thread that runs could change any of these while we look. But a thread that is seen asleep
// twice, and has not woken in between (naps, thread_wakes), was asleep all the time between. So all
// threads are looked at twice. If nothing has changed, all of them were asleep at the instant
// between the two looks, and none was left to wake a goroutine.
//
// Memory order:
//   [DL1] a machine's count of its naps (release) -> the look (acquire): the sleeps before. A
//         machine that has slept again since then also shows a greater count, because it counts
//         before it lies down: [K3].
//   [DL2] a plain thread's count of its sleep, and its waker's count of the wake -> the look: what
//         they did before. seq_cst, so that all threads see these counts change in one order.
//   [DL3] Store-then-load: a thread lies down, then looks whether the monitor suspects a
//         deadlock already; the monitor clears its suspicion, then looks which threads have lain
//         down. So a thread that lies down too late for this look makes the monitor look again. The
//         monitor's heavy barrier keeps the order on both sides.
#include "sched/deadlock.hpp"

#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "base/membarrier.hpp"
#include "base/sanitizer.hpp"
#include "base/signal.hpp"
#include "sched/all_timers.hpp"
#include "sched/keeper.hpp"
#include "sched/poller.hpp"
#include "sched/preempt.hpp"
#include "sched/scheduler.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

// Returns: the number of threads of this process, or 0 if it cannot be told.
std::uint64_t count_threads() noexcept {
  const int file = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[1024];
  const ssize_t n = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (n <= 0) return 0;
  text[n] = '\0';
  // "pid (name) state ...": the number of threads is the 18th field after the name. The name may
  // contain anything.
  const char* at = std::strrchr(text, ')');
  for (int field = 0; field < 18 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  return at != nullptr ? std::strtoull(at + 1, nullptr, 10) : 0;
}

// Returns: how many of the process's threads are the kernel's own workers for io_uring. They wake
// nobody while no operation is submitted.
std::uint64_t count_kernel_workers() noexcept {
  if (!sched.has_io_uring.load(std::memory_order_relaxed)) return 0;
  const int tasks = ::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (tasks < 0) return 0;
  std::uint64_t found = 0;
  alignas(dirent64) char entries[4096];
  for (ssize_t n = 0; (n = ::getdents64(tasks, entries, sizeof entries)) > 0;) {
    for (ssize_t at = 0; at < n;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      if (entry->d_name[0] == '.') continue;
      char path[32];
      char* end = path;
      for (const char* c = entry->d_name; *c != '\0' && end < path + 20; ++c) *end++ = *c;
      std::memcpy(end, "/comm", sizeof "/comm");
      const int name = ::openat(tasks, path, O_RDONLY | O_CLOEXEC);
      if (name < 0) continue;
      char text[4];
      if (::read(name, text, sizeof text) == sizeof text && std::memcmp(text, "iou-", 4) == 0) {
        ++found;
      }
      ::close(name);
    }
  }
  ::close(tasks);
  return found;
}

// Whether a signal from outside would run a handler of the program's.
bool signals_are_handled() noexcept {
  for (int s = 1; s < NSIG; ++s) {
    if (base::is_fault_signal(s) || s == SIGABRT) continue;  // a thread sends these to itself
    struct sigaction action{};
    if (::sigaction(s, nullptr, &action) != 0) continue;
    if (is_only_ours(s, action)) continue;
    if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) return true;
  }
  return false;
}

struct look {
  bool all_asleep = false;
  std::uint64_t naps = 0;
  std::uint64_t thread_sleeps = 0;
  std::uint64_t thread_wakes = 0;
  std::uint64_t machines = 0;
  bool operator==(const look&) const = default;
};

look look_at_all() noexcept {
  look l;
  l.thread_wakes = sched.thread_wakes.load(std::memory_order_seq_cst);    // [DL2]
  l.thread_sleeps = sched.thread_sleeps.load(std::memory_order_seq_cst);  // [DL2]
  const std::lock_guard hold(sched.lock);
  l.all_asleep = sched.starting.empty();
  for (std::uint32_t i = 0; i < sched.machines_made; ++i) {
    const machine* const m = sched.machine_table[i].load(std::memory_order_relaxed);
    if (!m->is_live) continue;
    ++l.machines;
    // If `naps` is the same before and after, the machine slept on while it was looked at. If it is
    // also the same at the next look, the machine has not been awake in between.
    const std::uint64_t naps = m->naps.load(std::memory_order_acquire);  // [DL1]
    l.all_asleep = l.all_asleep && m->sleep.sleeps_for_ever() &&
                   m->naps.load(std::memory_order_relaxed) == naps;
    l.naps += naps;
  }
  return l;
}

}  // namespace

bool has_foreign_threads() noexcept {
  const look all = look_at_all();
  const std::uint64_t services =
      sched.services.load(std::memory_order_relaxed) + WEFT_TSAN;  // TSan has a thread of its own
  const std::uint64_t ours =
      all.machines + services + (all.thread_sleeps - all.thread_wakes) + count_kernel_workers();
  const std::uint64_t threads = count_threads();
  return threads == 0 || threads > ours;  // 0: the number is not known
}

bool looks_deadlocked() noexcept {
  return sched.runs.load(std::memory_order_relaxed) != 0 &&
         sched.idle_count.load(std::memory_order_relaxed) >=
             sched.procs.load(std::memory_order_relaxed) &&
         !sched.stopping.load(std::memory_order_relaxed) && earliest_timer_hint() == base::never &&
         !work_waits_hint() && !the_poller.is_waited_for() &&
         sched.service_waits.load(std::memory_order_relaxed) == 0;
}

bool is_deadlocked() noexcept {
  const look first = look_at_all();
  if (!first.all_asleep) return false;
  const std::uint64_t services =
      sched.services.load(std::memory_order_relaxed) + WEFT_TSAN;  // TSan has a thread of its own
  const std::uint64_t in_weft = first.thread_sleeps - first.thread_wakes;
  const bool nobody_else =
      count_threads() == first.machines + services + in_weft + count_kernel_workers() &&
      !signals_are_handled();
  return nobody_else && looks_deadlocked() && look_at_all() == first;
}

std::int64_t deadlock_watch::note_suspicion(std::int64_t now_ns) noexcept {
  if (!noted_ && sched.suspicious.load(std::memory_order_acquire)) {  // [DL3]
    noted_ = true;
    wait_ns_ = first_ns;
    due_ns_ = std::min(due_ns_, now_ns + wait_ns_);
  }
  return due_ns_;
}

void deadlock_watch::look(std::int64_t now_ns) noexcept {
  // A thread that lies down from now on tells the monitor again. Until now none had to.
  if (noted_) {
    sched.suspicious.store(false, std::memory_order_seq_cst);  // [DL3]
    base::heavy_barrier();
  }
  noted_ = false;
  due_ns_ = base::never;
  if (!looks_deadlocked()) return;
  if (is_deadlocked()) base::fatal("all goroutines are asleep - deadlock!");
  dismiss_keeper();
  wait_ns_ = std::min(wait_ns_ * 2, most_ns);
  due_ns_ = now_ns + wait_ns_;
}

}  // namespace weft::sched
