// clock.hpp: the runtime's one door to time. Nothing else in the runtime asks the kernel what time
// it is, so that a test can hold the clock.
#pragma once

#include <cstdint>
#include <limits>

namespace weft::base {

// A deadline that never comes.
inline constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

// Nanoseconds on CLOCK_MONOTONIC.
std::int64_t now_ns() noexcept;

}  // namespace weft::base
