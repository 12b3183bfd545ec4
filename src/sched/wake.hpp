// wake.hpp: which machine is woken when work has become visible.
//
// The producer's side of idle_state.hpp, [W1]; sleep.hpp is the other side. Work that is made on a
// processor wakes a machine only if none searches and a processor listens. Work that belongs to no
// processor (timers, and the global queues except the overflow) wakes a dozing processor, too.
#pragma once

#include "base/membarrier.hpp"
#include "sched/global_queue.hpp"
#include "sched/machine.hpp"
#include "sched/scheduler.hpp"

#include <cstdint>

namespace weft::sched {

// To be called after work became visible: wakes a machine if none searches and a processor listens.
void wake_one(machine* m) noexcept;
[[gnu::always_inline]] inline void work_made(machine* m) noexcept {
  base::light_barrier();  // [W1]
  if (the_scheduler.idle.should_wake()) [[unlikely]]
    wake_one(m);
}
// For code without a processor: puts `g` into a global queue and wakes an idle processor.
void inject(global_queue::from lane, goroutine* g) noexcept;
// Wakes an idle processor, even a dozing one, to look for work at once. `of`: a processor on which
// work has waited for `waited_ns`, or null.
void wake_somebody(processor* of = nullptr, std::int64_t waited_ns = 0) noexcept;
// Wakes a machine if work waits. Must follow a search that ended without a last look
// (idle_state.hpp, I2).
void look_for_others() noexcept;

// Gives a token to the machine that a `_locked` function has returned, if any.
inline void wake(machine* m) noexcept {
  if (m != nullptr) m->sleep.wake();
}

// Ends the search that is counted for this machine. Returns: whether there was one; then
// look_for_others() must follow, unless the machine goes on to run something.
inline bool end_search(machine* m) noexcept {
  if (!m->searching) return false;
  m->searching = false;
  the_scheduler.idle.end_search();
  return true;
}

}  // namespace weft::sched
