// wake.hpp: work has become visible: who is woken for it.
//
// The producer's side of idle_state.hpp, [W1]; sleep.hpp is the other one. What is made on a
// processor wakes a machine only if nobody looks for work and somebody listens. What belongs to no
// processor (the global queue but for its overflow; timers) wakes a dozing processor, too.
#pragma once

#include "base/membarrier.hpp"
#include "sched/global_queue.hpp"
#include "sched/machine.hpp"
#include "sched/scheduler.hpp"

#include <cstdint>

namespace weft::sched {

// Called after work became visible: wakes a machine if nobody looks for work and somebody listens.
void wake_one(machine* m) noexcept;
[[gnu::always_inline]] inline void work_made(machine* m) noexcept {
  base::light_barrier();  // [W1]
  if (the_scheduler.idle.should_wake()) [[unlikely]]
    wake_one(m);
}
// From a place without a processor: puts `g` into a global queue and wakes an idle processor.
void inject(global_queue::from lane, goroutine* g) noexcept;
// Wakes an idle processor, also a dozing one, to look for work at once. `of`: a processor on which
// work has waited for so long, or null.
void wake_somebody(processor* of = nullptr, std::int64_t waited_ns = 0) noexcept;
// Somebody has to look for work, because a search ended without a last look (idle_state.hpp, I2).
void look_for_others() noexcept;

// Gives a token to whom a function with `_locked` in its name has named, if anybody.
inline void wake(machine* m) noexcept {
  if (m != nullptr) m->sleep.wake();
}

// The search that is counted for this machine is over. Returns: whether there was one: then
// look_for_others() must follow, unless the machine goes on to run something.
inline bool end_search(machine* m) noexcept {
  if (!m->searching) return false;
  m->searching = false;
  the_scheduler.idle.end_search();
  return true;
}

}  // namespace weft::sched
