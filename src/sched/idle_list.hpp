// idle_list.hpp: the list of idle processors, last idled first.
//
// A processor is idle in one of three ways (processor::idleness):
//
//   listening  whoever makes work wakes it: it is counted in idle_state.hpp
//   dozing     it looks for work by itself when its time is up (sleep.hpp)
//   numb       there is no thread for it: the kernel refuses one. It is staffed when something
//              comes from outside, or when the monitor tries again
//
// I1  A processor is in the list exactly if its `idle` is not busy.
#pragma once

#include "sched/machine.hpp"
#include "sched/processor.hpp"

namespace weft::sched {

// All with `_locked` require the scheduler's lock; to add or remove, also the right to touch `p`.
void add_idle_locked(processor* p, processor::idleness how) noexcept;
void remove_idle_locked(processor* p) noexcept;
// The best one of that kind: with a thread that does nothing else; else the one whose machine
// attends to the poller; else one for which a thread has to be made. Returns: null if there is
// none.
processor* find_idle_locked(processor::idleness how) noexcept;
// Takes an idle processor for a search that is counted already. Returns: whom to wake.
machine* rouse_locked(processor* p) noexcept;
// Those without a thread may be staffed again.
void revive_numb_locked() noexcept;

// Whether a processor is idle that has, or could have, a thread. A hint, or under the lock.
bool is_any_idle() noexcept;

}  // namespace weft::sched
