// starter.hpp: new threads for processors that have none.
//
// Creating a thread allocates, so it is never done inside the runtime. Instead a processor that
// needs a thread goes into the list `starting`, and the starter is woken, a thread that does
// nothing but create others. The starter may have to wait for a lock of malloc that a paused
// goroutine holds. So the processor stays in the list until the new thread takes it out. Until then
// a goroutine that has a thread may get the processor.
//
// If the kernel refuses a thread, the processor goes back to the idle list, numb. It is staffed
// again when something comes from outside or when the monitor tries again. The machines that exist
// carry on.
//
// Memory order:
//   [SR1] ask_for_thread_locked's change of starter_word (release) -> the starter (acquire): that a
//         thread is wanted. What for, the starter reads under the lock.
#pragma once

#include "sched/machine.hpp"
#include "sched/processor.hpp"
#include "sched/scheduler.hpp"

#include <atomic>

namespace weft::sched {

// Returns: 0 or an errno.
int start_starter() noexcept;

// All functions with `_locked` in their names require the scheduler's lock.

// Asks for another thread, for a processor or to spare.
void ask_for_thread_locked() noexcept;
// Whether ask_for_thread_locked() makes sense now.
bool can_ask_for_thread_locked() noexcept;

// Puts a processor into the list of those that wait for a new thread. A search is counted for it.
void add_starting_locked(processor* p) noexcept;
// Removes the first waiting processor (take), or `p` (remove). Return: null, or false, if there is
// none. The search counted for it goes to the caller.
processor* take_starting_locked() noexcept;
bool remove_starting_locked(processor* p) noexcept;

// Whether the kernel refused the last thread that it was asked for.
inline bool is_refused_threads() noexcept {
  return the_scheduler.refused_until_ns.load(std::memory_order_relaxed) != 0;
}
// Whether a thread exists, or can be made, for a processor that leaves a hog.
bool has_thread_locked() noexcept;
bool has_thread_hint() noexcept;
// Whether a thread exists, or can be made, for a processor that is lent.
bool has_spare_locked() noexcept;
bool has_spare_hint() noexcept;

}  // namespace weft::sched
