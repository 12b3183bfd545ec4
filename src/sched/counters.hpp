// counters.hpp: how often processors changed hands, and why. All of it is off the fast paths, so
// plain shared counters do.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::sched {

struct counter {
  std::atomic<std::uint64_t> value{0};
  // relaxed: counts, and orders nothing.
  void add() noexcept { value.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value.load(std::memory_order_relaxed); }
};

struct counters {
  // A machine gives its processor up by itself.
  counter handoff_blocking;  // blocking(f)
  counter handoff_bound;     // a goroutine locked to its thread waits
  counter handoff_granted;   // a processor granted to the thread on which a goroutine waits

  // A processor is taken from a machine whose goroutine runs user code.
  counter detach_call;     // an announced call that is usually short was not
  counter detach_blocked;  // the thread sleeps in a system call or a page fault
  counter detach_hog;      // computed through two slices and could not be paused
  counter detach_resize;   // max_procs shrank
  counter detach_failed;   // the machine was inside the runtime, or had moved on

  // A processor is borrowed for what a timer or an event woke.
  counter loan_made;      // with a membarrier
  counter loan_repeated;  // from a machine that had got it back and not noticed: without
  counter loan_returned;

  // Hogs.
  counter preempt_armed;     // a CPU timer was set
  counter preempt_stale;     // it went off when there was no reason any more
  counter preempt_deferred;  // or at a bad moment
  counter preempt_refused;   // or with too many paused already
  counter yield_asked;       // the word was left for a machine that enters often
  counter yield_done;        // and seen
  counter pause_hog;         // paused, and passed its processor on
  counter pause_unattached;  // paused, having lost its processor before
  counter resume;            // a paused goroutine got its turn

  // A goroutine comes back to the runtime and has lost its processor.
  counter return_loan;    // it had been given back meanwhile
  counter return_same;    // got its old one
  counter return_other;   // got another idle one
  counter return_queued;  // waits in the global queue

  counter idle_overlooked;  // a goroutine kept waiting beside an idle processor (idle_watch.hpp)
  counter monitor_rounds;
  counter stall_reports;
};

extern constinit counters the_counters;

}  // namespace weft::sched
