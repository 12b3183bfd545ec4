// search.hpp: a processor with nothing to run looks for work.
#pragma once

#include "sched/machine.hpp"

namespace weft::sched {

// Looks for work everywhere, for a bounded time. Returns: null if there is none worth taking.
goroutine* search(machine* m) noexcept;

}  // namespace weft::sched
