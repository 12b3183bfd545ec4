#include "sched/wake.hpp"

#include "base/clock.hpp"
#include "sched/idle_list.hpp"
#include "sched/keeper.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/work.hpp"

#include <atomic>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

// Tells the machine that is about to be woken why. `of`: the processor on which work has waited for
// `waited_ns`, or null.
void tell(machine* m, processor* of, std::int64_t waited_ns) noexcept {
  m->told_of = of;
  m->told_waited_ns = waited_ns;
  m->told_picks = m->told_of != nullptr ? m->told_of->picks.load(std::memory_order_relaxed) : 0;
}

}  // namespace

void wake_one(machine* m) noexcept {
  while (sched.idle.begin_wake()) {
    sched.lock.lock();
    processor* const p = find_idle_locked(processor::idleness::listening);
    machine* const woken = p != nullptr ? rouse_locked(p) : nullptr;
    if (woken != nullptr) tell(woken, m != nullptr ? m->p.get() : nullptr, 0);
    // Another thread took the listening processor meanwhile. This search ends under the lock, so
    // that no processor begins to listen in between. A producer may have relied on this search; so
    // look whether the duty to wake is there again.
    if (p == nullptr) sched.idle.end_search();
    const bool monitor = p == nullptr && stop_monitor_listening_locked();
    sched.lock.unlock();
    wake(woken);
    if (monitor) poke_monitor();
    if (p != nullptr) return;
  }
}

void wake_somebody(processor* of, std::int64_t waited_ns) noexcept {
  base::light_barrier();  // [W1]
  // A machine that searches has its last look still to come (idle_state.hpp, I2).
  if (sched.idle.searching_hint() != 0) return;
  sched.lock.lock();
  processor* p = find_idle_locked(processor::idleness::listening);
  if (p == nullptr) p = find_idle_locked(processor::idleness::dozing);
  if (p == nullptr) p = find_idle_locked(processor::idleness::numb);
  machine* woken = nullptr;
  if (p != nullptr && sched.idle.try_search(processors_max)) woken = rouse_locked(p);
  if (woken != nullptr) tell(woken, of, waited_ns);
  const bool monitor = p == nullptr && stop_monitor_listening_locked();
  sched.lock.unlock();
  wake(woken);
  if (monitor) poke_monitor();
}

void inject(global_queue::from lane, goroutine* g) noexcept {
  g->since_ns = base::now_ns();
  sched.global.push(lane, g);
  wake_somebody();
}

void look_for_others() noexcept {
  base::heavy_barrier();  // [W1]
  if (work_waits_hint() || is_urgent_hint(base::now_ns())) wake_somebody();
  attend_poller();  // poller.hpp, P1
}

}  // namespace weft::sched
