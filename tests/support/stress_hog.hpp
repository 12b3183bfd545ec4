// stress_hog.hpp: goroutines that compute without entering the runtime, and what the runtime did
// about them.
#pragma once

#include "stress_fixture.hpp"

#include <weft/debug.hpp>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

namespace weft::test {

// main() of a program that wants a slice so short that hogs are paused all the time. What is in
// WEFT_DEBUG already wins.
inline int run_tests_with_short_slice(int argc, char** argv) {
  const char* const given = std::getenv("WEFT_DEBUG");
  const std::string all =
      given != nullptr ? std::string("slice=1ms,") + given : std::string("slice=1ms");
  ::setenv("WEFT_DEBUG", all.c_str(), 1);  // before anything uses the runtime
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// The sum of some counters.
inline std::uint64_t count_of(std::initializer_list<std::string_view> names) {
  const debug::scheduler_stats all = debug::stats();
  std::uint64_t sum = 0;
  for (const std::string_view name : names) sum += all[name];
  return sum;
}
inline std::uint64_t pauses() { return count_of({"pause.hog", "pause.unattached"}); }
inline std::uint64_t detaches() {
  return count_of({"detach.call", "detach.blocked", "detach.hog", "detach.resize"});
}

// An emulator of another processor does not have the CPU timers of the kernel.
inline constexpr bool can_pause = sizeof(WEFT_EMULATOR) == 1;
// Under TSan no goroutine is paused in the C and C++ libraries, nor in TSan's own code.
inline constexpr bool can_pause_in_libraries = can_pause && !base::sanitizer::is_thread;

// Computes, about a nanosecond for each of the n steps, and calls nothing. Returns: what depends on
// every step and on nothing else.
[[gnu::always_inline]] inline std::uint64_t churn(std::uint64_t x, std::uint64_t n) {
  for (; n != 0; --n) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    asm volatile("" : "+r"(x));  // no step may be computed in advance or left out
  }
  return x;
}

}  // namespace weft::test
