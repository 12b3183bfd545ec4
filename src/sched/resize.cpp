// resize.cpp: how max_procs changes while everything runs.
//
// Nothing stops the world. A processor whose index is no longer below max_procs() is marked
// `retiring`. If it is idle, it is taken out of the idle list. If its machine looks for work, that
// machine lets it go. If its machine runs a goroutine, it is taken from that machine: the goroutine
// goes on for as long as it stays in user code, and finds at its next entry into the runtime that
// it has to get another processor. What the processor had queued moves to the global queue. Its
// timers stay where they are, because any machine may fire them. Retired processors are kept until
// the number grows again.
//
// Memory order:
//   [P1] resize's store of the number of processors made (release) -> a load of it (acquire): the
//        records below that number.
#include "sched/resize.hpp"

#include "base/check.hpp"
#include "base/cpu_limit.hpp"
#include "base/random.hpp"
#include "sched/enter.hpp"
#include "sched/handoff.hpp"
#include "sched/idle_list.hpp"
#include "sched/keeper.hpp"
#include "sched/ownership.hpp"
#include "sched/scheduler.hpp"
#include "sched/starter.hpp"
#include "sched/wake.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <sys/mman.h>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

base::spin_lock resize_lock;  // one change at a time; taken before any other lock
std::atomic<bool> set_by_hand{false};

bool make_processor(std::uint32_t index) noexcept {
  const int saved = errno;
  void* const memory = ::mmap(nullptr, sizeof(processor), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  errno = saved;
  if (memory == MAP_FAILED) return false;
  processor* const p = ::new (memory) processor;
  p->index = index;
  p->random = base::random(base::seed_for(index));
  p->retiring.store(true, std::memory_order_relaxed);
  p->retired = true;
  sched.processors[index].store(p, std::memory_order_relaxed);   // [P1]
  sched.procs_made.store(index + 1, std::memory_order_release);  // [P1]
  return true;
}

void revive_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  if (!p->retired) return;
  p->retired = false;
  p->retiring.store(false, std::memory_order_relaxed);  // ordered by the lock
  add_idle_locked(p, processor::idleness::listening);
}

// Takes a processor that no machine uses out of circulation. Returns: the machine to wake after
// unlocking, or null.
machine* retire_unused_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  p->retiring.store(true, std::memory_order_relaxed);
  if (p->idle != processor::idleness::busy) {
    remove_idle_locked(p);
    machine* const keeper = ownership::dismiss_sleeper_locked(p);
    retire_locked(*p);
    return keeper;
  }
  if (remove_starting_locked(p)) {
    sched.idle.end_search();
    retire_locked(*p);
  }
  return nullptr;
}

bool is_retired(processor* p) noexcept {
  const std::lock_guard hold(sched.lock);
  return p->retired;
}

void retire(processor* p) noexcept {
  for (int turn = 0; !is_retired(p); ++turn) {
    if (retake(*p, retake_cause::resize)) return;
    if (sched.stopping.load(std::memory_order_relaxed)) return;  // its machine keeps it now
    if (turn > 10) base::yield_thread();
  }
}

}  // namespace

void retire_locked(processor& p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(p.holder.load(std::memory_order_relaxed) == nullptr);  // ownership.hpp
  WEFT_ASSERT(p.idle == processor::idleness::busy && !p.retired);
  ownership::end_loan_of_locked(p);
  drain(p);
  p.retired = true;
}

std::uint32_t resize(std::uint32_t n) noexcept {
  // While the process exits there is only one thread.
  if (sched.stopping.load(std::memory_order_relaxed)) return 1;
  const lock_outside mark;
  const std::lock_guard one(resize_lock);
  n = std::min(n, processors_max);
  while (sched.procs_made.load(std::memory_order_relaxed) < n) {  // written under resize_lock only
    if (!make_processor(sched.procs_made.load(std::memory_order_relaxed))) {
      base::warn("no memory for more processors; carrying on with those there are");
      break;
    }
  }
  const std::uint32_t made = sched.procs_made.load(std::memory_order_relaxed);
  n = std::min(n, made);
  sched.lock.lock();
  // Looked at once more under the lock, which the exit takes after it has begun: the processor of
  // the thread that ends the process must not retire.
  if (sched.stopping.load(std::memory_order_relaxed)) {
    sched.lock.unlock();
    return 1;
  }
  const std::uint32_t before = sched.procs.load(std::memory_order_relaxed);
  sched.procs.store(n, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < made; ++i) {
    processor* const p = sched.processors[i].load(std::memory_order_relaxed);
    if (i < n) {
      revive_locked(p);
    } else if (!p->retired) {
      // Each machine is woken at once, because there may be one for every processor. A sleeper that
      // was given another processor to hold waits for nothing but this.
      wake(retire_unused_locked(p));
    }
  }
  sched.lock.unlock();
  for (std::uint32_t i = n; i < made; ++i) {
    retire(sched.processors[i].load(std::memory_order_relaxed));
  }
  keep_time();            // keeper.hpp, I1
  attend_poller();        // poller.hpp, P1
  base::heavy_barrier();  // [W1]: new processors listen, and old ones left work behind
  if (before != 0 && (work_waits_hint() || is_urgent_hint(0))) wake_somebody();
  return before;
}

std::uint32_t resize_by_hand(std::uint32_t n) noexcept {
  set_by_hand.store(true, std::memory_order_relaxed);  // the monitor reads it once a second
  return resize(n);
}

void follow_cpu_limit() noexcept {
  if (set_by_hand.load(std::memory_order_relaxed)) return;
  const auto n = static_cast<std::uint32_t>(base::default_procs());
  if (n != sched.procs.load(std::memory_order_relaxed)) resize(n);
}

}  // namespace weft::sched
