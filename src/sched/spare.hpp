// spare.hpp: spare machines, threads that sleep without a processor until one needs a thread.
//
// A few are kept ready once a processor has had to change its thread: it takes time to make a
// thread, and what it is needed for is often urgent. A surplus thread ends after five seconds.
//
// I1  A spare machine is in the list of spare ones. A thread that takes it out gives it a processor
//     and a token.
#pragma once

#include "sched/machine.hpp"

#include <cstdint>

namespace weft::sched {

inline constexpr std::uint32_t spare_reserve = 2;

// Requires: the scheduler's lock; `m` is asleep, or about to call wait_as_spare().
void add_spare_locked(machine* m) noexcept;
// Takes the machine that became spare last, for a processor without a machine; asks for more
// threads if the reserve is short. Requires: the lock. Returns: null if there is none.
machine* take_spare_locked() noexcept;

// Sleeps without a processor. Returns: false if the thread should end.
bool sleep_spare(machine* m) noexcept;
// Sleeps as a machine that is in the list already. Returns: false if it was taken out to end.
bool wait_as_spare(machine* m) noexcept;

}  // namespace weft::sched
