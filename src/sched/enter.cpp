// enter.cpp: what an entry does that finds a word other than `free` on its seat. seat.hpp has the
// table.
#include "sched/enter.hpp"

#include "base/clock.hpp"
#include "sched/counters.hpp"
#include "sched/order.hpp"
#include "sched/ownership.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"
#include "sched/switch.hpp"
#include "sched/theft.hpp"
#include "sched/wake.hpp"

#include <atomic>

namespace weft::sched {

machine* enter_slow(machine* m, entry then, bool* has_waited) noexcept {
  for (;;) {
    const std::uint32_t word = m->seat.settle();
    switch (seat::kind_of(word)) {
      case seat::free:
        return m;
      case seat::asked:
        if (m->seat.accept(word)) hand_over(m, seat::thief_of(word));
        break;
      case seat::yield_please:
        if (then == entry::readies) return m;
        if (!m->seat.accept(word)) break;
        if (then == entry::parks) {
          m->p->until_look = 1;  // others get their turn
          return m;
        }
        if (the_scheduler.stopping.load(std::memory_order_relaxed)) return m;
        count_pick(*m->p);
        if (!pass_turn(m)) return m;
        the_counters.yield_done.add();
        return this_machine();
      case seat::taken: {
        goroutine* const g = m->g;
        if (ownership::acquire(m)) {
          g->set_status(state::running);
          return m;
        }
        g->context.busy.store(1, std::memory_order_relaxed);  // ordered by the queue's lock
        g->set_status(state::runnable);
        if (g->how == mode::bound) {
          m->task = errand::wait_bound;
          m->errand_goroutine = g;
        }
        // turn_until_ns was written under the lock, which acquire() has held since.
        const bool yields = has_waited != nullptr;
        const bool had_turn = yields || base::now_ns() >= m->turn_until_ns;
        inject(had_turn ? global_queue::from::shared : global_queue::from::woken, g);
        switch_from(m, g, nullptr);
        if (has_waited != nullptr) *has_waited = true;
        return this_machine();
      }
      case seat::stopped:
        stop_here();
      case seat::pending:
        break;  // settle() has waited for the claimer
    }
  }
}

}  // namespace weft::sched
