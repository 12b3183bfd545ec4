// past.hpp: a deadline that has passed, which ends every wait. (The clock's first instant means
// none.)
#pragma once

#include <weft/time.hpp>

namespace weft::io {

inline constexpr clock::time_point past{clock::duration(1)};

}  // namespace weft::io
