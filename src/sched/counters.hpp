// counters.hpp: how often processors changed hands, and why. All counting is off the fast paths, so
// plain shared counters are good enough.
//
// To add a counter:
//   - a member below, with a comment that says what it counts; call its add() where that happens;
//   - a line with its name and value in stats(), src/debug/stats.cpp;
//   - its name in the comment above stats() in include/weft/debug.hpp.
// A gauge has no member here: stats() reads it where it is kept. An add() is an atomic operation on
// shared memory, so an event of a fast path is counted in the processor's own record instead.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::sched {

struct counter {
  std::atomic<std::uint64_t> value{0};
  // relaxed: only counts, and orders nothing.
  void add() noexcept { value.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value.load(std::memory_order_relaxed); }
};

struct counters {
  // A machine gives its processor up by itself.
  counter handoff_blocking;  // blocking(f)
  counter handoff_bound;     // a goroutine bound to its thread waits
  counter handoff_granted;   // a processor granted to the thread on which a goroutine waits

  // A processor is taken from a machine whose goroutine runs user code.
  counter detach_call;     // an announced call that is usually short was not
  counter detach_blocked;  // the thread sleeps in a system call or a page fault
  counter detach_hog;      // computed through two slices and could not be paused
  counter detach_resize;   // max_procs shrank
  counter detach_failed;   // the machine was inside the runtime, or had moved on

  // A processor is borrowed for goroutines that a timer or an event woke.
  counter loan_made;      // with a membarrier
  counter loan_repeated;  // without one, from a machine that had not noticed that it had it back
  counter loan_returned;

  // Hogs.
  counter preempt_armed;     // a CPU timer was set
  counter preempt_stale;     // the timer went off when there was no reason any more
  counter preempt_deferred;  // the timer went off inside the runtime, or under one of its locks
  counter preempt_refused;   // the timer went off when no thread could go on with the processor
  counter yield_asked;       // a plea was left on the seat of a machine that enters often
  counter yield_done;        // a machine saw the plea, and yielded
  counter pause_hog;         // paused, and passed its processor on
  counter pause_unattached;  // paused, after it had lost its processor
  counter resume;            // a paused goroutine got its turn

  // A goroutine comes back to the runtime and has lost its processor.
  counter return_loan;    // the processor had come back from a loan meanwhile
  counter return_same;    // the goroutine got its old processor
  counter return_other;   // the goroutine got another idle processor
  counter return_queued;  // the goroutine waits in the global queue

  counter idle_overlooked;  // a goroutine waited beside an idle processor (idle_watch.hpp)
  counter monitor_rounds;
  counter stall_reports;
};

extern constinit counters the_counters;

}  // namespace weft::sched
