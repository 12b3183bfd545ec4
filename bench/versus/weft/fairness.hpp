// fairness.hpp: the cases that tell how fairly a processor is shared when more goroutines want it
// than it can serve.
#pragma once

#include <string_view>

namespace bench {

// Runs that case, checks its result and prints its figures. What it started may still run when it
// returns, and when the process exits.
// Returns: false if there is no such case.
bool measure_fairness(std::string_view name);

}  // namespace bench
