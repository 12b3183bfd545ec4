// fast_park.hpp: park and ready, inlined, for primitives whose operations take a few nanoseconds.
// Otherwise the same as in weft/detail/park.hpp, for callers that are inside the runtime on a
// machine.
#pragma once

#include "base/check.hpp"
#include "sched/enter.hpp"
#include "sched/order.hpp"
#include "sched/plain_thread.hpp"
#include "sched/switch.hpp"
#include "sched/wake.hpp"

#include <weft/detail/park.hpp>

namespace weft::sched {

// Makes `g` runnable, to run next on this machine. If `g` stands for a plain thread, wakes that.
[[gnu::always_inline]] inline void ready_on(machine* m, goroutine* g) noexcept {
  if (g->how >= mode::thread) [[unlikely]] {
    wake_thread(g);
    return;
  }
  WEFT_ASSERT(g->get_status() == state::waiting);
  g->set_status(state::runnable);
  push_next(*m->p, g);
  work_made(m);
}

// Marks the goroutine that runs here as waiting. Returns: that goroutine.
[[gnu::always_inline]] inline goroutine* prepare_park_on(machine* m,
                                                         detail::wait_reason reason) noexcept {
  goroutine* const g = m->g;
  WEFT_ASSERT(m->seat.inside_hint() && g->get_status() == state::running);
  g->reason.store(reason, std::memory_order_relaxed);  // dumps read it as a hint
  g->set_status(state::waiting);
  // relaxed: a waker finds the goroutine through the primitive's lock.
  g->context.busy.store(1, std::memory_order_relaxed);
  return g;
}

// Parks; leaves the runtime after the goroutine has been resumed.
[[gnu::always_inline]] inline void park_on(machine* m) noexcept {
  suspend(m, m->g);
  leave(this_machine());
}

}  // namespace weft::sched
