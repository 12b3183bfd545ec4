// clock.hpp: the only place where the runtime reads the time, so that a test can replace the clock.
#pragma once

#include <cstdint>
#include <limits>

namespace weft::base {

// A deadline that never comes.
inline constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

// Nanoseconds on CLOCK_MONOTONIC.
std::int64_t now_ns() noexcept;

}  // namespace weft::base
