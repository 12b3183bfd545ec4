// keeper.hpp: which of the sleeping machines wakes up for the earliest timer, and which one sleeps
// in the poller.
//
// I1  If timers are pending and all machines sleep, one of them, the keeper, sleeps until the
//     earliest timer. A machine becomes the keeper when it goes to sleep while a timer is due
//     before the present keeper would wake. A keeper that gets other work wakes another machine to
//     keep time, if there is one. Busy machines look at their own timers.
#pragma once

#include "sched/machine.hpp"

namespace weft::sched {

// Makes sure that a machine wakes up for the earliest timer.
void keep_time() noexcept;
// If no timer is left, wakes the machine that sleeps until a timer, which then sleeps for good.
void dismiss_keeper() noexcept;
// Makes sure that a machine sleeps in the poller if all machines sleep (poller.hpp, P1).
void attend_poller() noexcept;

// These require the scheduler's lock. They return the machine to wake, or null.
machine* keep_time_locked() noexcept;
// For when the keeper has got something else to do, or there is none.
machine* pass_timekeeping_locked() noexcept;
// Whether a timer is due before any machine would wake up for it. Requires: the lock.
bool is_keeper_needed_locked() noexcept;

}  // namespace weft::sched
