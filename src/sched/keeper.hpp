// keeper.hpp: which of the machines that sleep wakes up for the earliest timer, and which one
// sleeps in the poller.
//
// I1  If timers are pending and all machines sleep, one of them, the keeper, sleeps until the
//     earliest. A machine that goes to sleep when a timer is due before the keeper would wake
//     becomes the keeper instead. One that gets other work to do wakes another machine to keep
//     time, if there is one; busy machines look at their own timers.
#pragma once

#include "sched/machine.hpp"

namespace weft::sched {

// Sees to it that somebody wakes up for the earliest timer.
void keep_time() noexcept;
// Wakes the machine that sleeps until a timer, if there is none any more: it sleeps for good then.
void dismiss_keeper() noexcept;
// Sees to it that somebody sleeps in the poller if all sleep (poller.hpp, P1).
void attend_poller() noexcept;

// Require: the scheduler's lock. Return: whom to wake, or null.
machine* keep_time_locked() noexcept;
// The keeper has got something else to do, or there is none.
machine* pass_timekeeping_locked() noexcept;
// Whether a timer is due before anybody would wake up for it. Requires: the lock.
bool is_keeper_needed_locked() noexcept;

}  // namespace weft::sched
