// The clock of the torture machine, and work that takes a given time of CPU.
//
// Work is a number of steps of a chain of multiplications, not a time on the clock: a goroutine
// that is taken off the CPU has to do the rest later, as in a real program. The chain costs the
// same number of cycles however it is compiled, so that the program in Go does the same work. How
// many steps a microsecond takes is measured at the start, as the best of many short tries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

namespace torture {

inline std::int64_t now_ns() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

inline void spin(std::int64_t steps) noexcept {
  std::uint64_t x = 1;
  for (std::int64_t i = 0; i < steps; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(x));  // or the compiler would compute the end of the chain at once
  }
}

inline std::int64_t measure_steps_per_us() noexcept {
  constexpr std::int64_t steps = 10'000;
  std::int64_t best_ns = INT64_MAX;
  for (int i = 0; i < 100; ++i) {
    const std::int64_t begin = now_ns();
    spin(steps);
    best_ns = std::min(best_ns, now_ns() - begin);
  }
  return std::max<std::int64_t>(1, steps * 1000 / best_ns);
}

}  // namespace torture
