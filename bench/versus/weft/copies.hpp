// copies.hpp: the cases that move data from one descriptor to another.
#pragma once

#include <string_view>

namespace bench {

// Runs that case, checks its result and prints its figures. Returns: false if there is no such
// case.
bool measure_copies(std::string_view name);

}  // namespace bench
