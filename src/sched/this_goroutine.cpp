// this_goroutine.cpp: what a goroutine does to itself: yield, exit, lock_thread.
#include <weft/go.hpp>

#include "sched/enter.hpp"
#include "sched/exit.hpp"
#include "sched/order.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/switch.hpp"

#include <stdexcept>
#include <thread>

namespace weft {

using sched::goroutine;
using sched::machine;
using sched::mode;
using sched::processor;

void detail::yield() noexcept { this_goroutine::yield(); }

namespace this_goroutine {

std::uint64_t id() {
  if (const machine* const m = sched::this_machine()) return m->g->id;
  sched::simulation* const s = sched::this_simulation();
  return s != nullptr ? s->self()->id : 0;
}

void yield() {
  machine* m = sched::this_machine();
  if (m == nullptr) [[unlikely]] {
    if (sched::simulation* const s = sched::this_simulation()) return s->yield();
    if (!sched::yield_at_exit()) std::this_thread::yield();
    return;
  }
  if (!m->seat.enter()) [[unlikely]] {
    bool has_waited = false;
    m = sched::enter_slow(m, sched::entry::parks, &has_waited);
    // It had lost its processor and waited for its turn. That counts as the yield.
    if (has_waited) return sched::leave(m);
  }
  processor& p = *m->p;
  sched::count_pick(p);
  if (--p.until_look == 0) [[unlikely]] {
    (void)sched::pass_turn(m);
  } else if (goroutine* const next = sched::pick_fast(p)) {
    goroutine* const g = m->g;
    sched::mark_runnable(g);
    sched::push_ready(p, g);
    sched::switch_from_queued(m, g, next);
  }
  sched::leave(sched::this_machine());
}

void exit() {
  const machine* const m = sched::this_machine();
  sched::simulation* const s = sched::this_simulation();
  if (m == nullptr && s == nullptr) {
    throw std::logic_error("weft::this_goroutine::exit on a plain thread");
  }
  arch::unwind_goroutine(*sched::unwind_storage_of(m != nullptr ? m->g : s->self()));
}

void lock_thread() {
  machine* m = sched::this_machine();
  if (m == nullptr || sched::is_exiting(m)) return;  // no goroutine can go to another thread then
  m = sched::enter();
  goroutine* const g = m->g;
  ++m->locks;
  g->how = mode::bound;
  g->bound = m;
  sched::leave(m);
}

void unlock_thread() {
  machine* m = sched::this_machine();
  if (m == nullptr || m->locks == 0) return;
  m = sched::enter();
  goroutine* const g = m->g;
  if (--m->locks == 0) {
    g->how = mode::parked;
    g->bound = nullptr;
  }
  sched::leave(m);
}

}  // namespace this_goroutine

}  // namespace weft
