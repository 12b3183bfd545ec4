// nanoseconds.hpp: durations and time points of every kind as 64 bits of nanoseconds.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/park.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <ratio>
#include <type_traits>

namespace weft::detail {

WEFT_API bool time_is_simulated() noexcept;  // other clocks stand still while simulated time passes

// Returns: the nanoseconds of any duration, rounded up (nothing wakes early) and clamped to 64
// bits. Not-a-number counts as 0.
template <class Rep, class Period>
std::int64_t to_ns(std::chrono::duration<Rep, Period> d) {
  using std::chrono::nanoseconds;
  if constexpr (std::is_same_v<std::chrono::duration<Rep, Period>, nanoseconds>) {
    return d.count();
  } else {
    using seconds = std::chrono::duration<long double>;
    constexpr long double limit = 9.2e9L;  // 292 years
    const long double s = std::chrono::duration_cast<seconds>(d).count();
    if (s >= limit) return INT64_MAX;
    if (s <= -limit) return INT64_MIN;
    if (std::isnan(s)) return 0;
    using factor = std::ratio_divide<Period, std::nano>;
    if constexpr (factor::num == 1 || factor::den == 1) {
      return std::chrono::ceil<nanoseconds>(d).count();
    } else {
      // For a unit such as a sixtieth of a second the steps of an exact conversion might overflow.
      return static_cast<std::int64_t>(std::ceil(s * 1e9L));
    }
  }
}

// Returns: the nanoseconds from now until `when` on its own clock, clamped to 64 bits: neither a
// time point nor the difference of two has to fit.
template <class Clock, class Duration>
std::int64_t ns_until(std::chrono::time_point<Clock, Duration> when) {
  const std::int64_t then = to_ns(when.time_since_epoch());
  std::int64_t left = 0;
  if (!__builtin_sub_overflow(then, to_ns(Clock::now().time_since_epoch()), &left)) return left;
  return then < 0 ? INT64_MIN : INT64_MAX;
}

inline std::int64_t deadline_after(std::int64_t ns) noexcept {
  const std::int64_t now = clock_now_ns();
  if (ns <= 0) return now;
  return ns > INT64_MAX - 1 - now ? INT64_MAX - 1 : now + ns;
}

// Calls wait_ns(deadline) until `when` has come on its own clock, or wait_ns returns true. Returns:
// whether wait_ns returned true.
template <class Clock, class Duration, class Wait>
bool wait_on_clock(std::chrono::time_point<Clock, Duration> when, Wait wait_ns) {
  for (;;) {
    const std::int64_t left = ns_until(when);
    if (wait_ns(deadline_after(left))) return true;
    if (left <= 0 || time_is_simulated() || ns_until(when) <= 0) return false;
  }
}

}  // namespace weft::detail
