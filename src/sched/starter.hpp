// starter.hpp: new threads for processors that have none.
//
// Creating a thread allocates, so it is never done inside the runtime. A processor that needs a
// thread goes into the list `starting`, and the starter, a thread that does nothing else, is woken.
// It may have to wait, for a lock of malloc's that a paused goroutine holds; so the processor stays
// in the list until the new thread takes it out, and meanwhile a goroutine that has a thread may
// get it. If the kernel refuses, the processor goes back to the idle list, numb: it is staffed
// again when something comes from outside or when the monitor tries again, and the machines that
// exist carry on.
#pragma once

#include "sched/machine.hpp"
#include "sched/processor.hpp"
#include "sched/scheduler.hpp"

#include <atomic>

namespace weft::sched {

// Returns: 0 or an errno.
int start_starter() noexcept;

// All with `_locked` require the scheduler's lock.

// Another thread is needed, for a processor or to spare.
void ask_for_thread_locked() noexcept;
// Whether it is worth asking.
bool can_ask_for_thread_locked() noexcept;

// Puts a processor into the list of those that wait for a new thread. A search is counted for it.
void add_starting_locked(processor* p) noexcept;
// Takes one out: the first, or that one. Return: null, or false, if there is none. The search
// counted for it goes to the caller.
processor* take_starting_locked() noexcept;
bool remove_starting_locked(processor* p) noexcept;

// Whether the kernel has refused the last thread it was asked for.
inline bool is_refused_threads() noexcept {
  return the_scheduler.refused_until_ns.load(std::memory_order_relaxed) != 0;
}
// Whether there is a thread, or can be one, for a processor that leaves a hog.
bool has_thread_locked() noexcept;
bool has_thread_hint() noexcept;
// Whether there is a thread, or can be one, for a processor that is lent.
bool has_spare_locked() noexcept;
bool has_spare_hint() noexcept;

}  // namespace weft::sched
