// keeper.hpp: which of the sleeping machines wakes up for the earliest timer. (lie_down() in
// sleep.cpp decides which machine sleeps in the poller. attend_poller() only wakes a machine that
// may lie down there.)
//
// I1  If timers are pending and all machines sleep, one of them, the keeper, sleeps until the
//     earliest timer. A machine becomes the keeper when it goes to sleep with its processor while a
//     timer has no keeper, or is due before the present keeper would wake up. A keeper that gets
//     other work wakes another machine to keep time, if there is one. Busy machines fire timers at
//     their looks (order.hpp).
#pragma once

#include "sched/machine.hpp"

namespace weft::sched {

// Makes sure that a machine wakes up for the earliest timer.
void keep_time() noexcept;
// Wakes the keeper if no timer is left, and the machine in the poller if no goroutine waits for a
// descriptor. Both then lie down again, without a deadline and not in the poller (deadlock.cpp).
void dismiss_keeper() noexcept;
// If a goroutine waits for a descriptor and no thread is in the poller, wakes an idle machine. That
// machine then polls, or sleeps in the poller (poller.hpp, P1).
void attend_poller() noexcept;

// Like keep_time(). Requires: the scheduler's lock. Returns: the machine to wake, or null.
machine* keep_time_locked() noexcept;
// Picks a machine to look at the timers, because the keeper has something else to do or there is no
// keeper. Requires: the scheduler's lock. Returns: the machine to wake, or null.
machine* pass_timekeeping_locked() noexcept;
// Whether a timer is due before the keeper wakes up, or is pending without a keeper. Requires: the
// scheduler's lock.
bool is_keeper_needed_locked() noexcept;

}  // namespace weft::sched
