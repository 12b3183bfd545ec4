// past.hpp: a deadline that has passed, and so ends every wait. It is not the clock's first
// instant, which means no deadline.
#pragma once

#include <weft/time.hpp>

namespace weft::io {

inline constexpr clock::time_point past{clock::duration(1)};

}  // namespace weft::io
