// idle_list.hpp: the list of idle processors, last idled first.
//
// A processor is idle in one of three ways (processor::idleness):
//
//   listening  a thread that makes work wakes it: it is counted in idle_state.hpp
//   dozing     its machine looks for work by itself when the doze is over (sleep.hpp)
//   numb       there is no thread for it: the kernel refuses one. It is staffed when something
//              comes from outside, or when the monitor tries again
//
// I1  A processor is in the list exactly if its `idle` is not busy.
#pragma once

#include "sched/machine.hpp"
#include "sched/processor.hpp"

namespace weft::sched {

// All functions with `_locked` in their names require the scheduler's lock. Those that add or
// remove `p` also require the right to touch it.
void add_idle_locked(processor* p, processor::idleness how) noexcept;
void remove_idle_locked(processor* p) noexcept;
// Returns: the best processor of that kind, or null. Best is one with a thread that does nothing
// else; then the one whose machine sleeps in the poller; then one that needs a new thread.
processor* find_idle_locked(processor::idleness how) noexcept;
// Takes `p` out for a search that is counted already. Returns: the machine to wake, or null.
machine* rouse_locked(processor* p) noexcept;
// Processors without a thread may be staffed again: they listen from now on.
void revive_numb_locked() noexcept;

// Whether a processor is idle that has, or could have, a thread. Exact under the lock, else a hint.
bool is_any_idle() noexcept;

}  // namespace weft::sched
