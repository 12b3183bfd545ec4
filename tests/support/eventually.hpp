// eventually.hpp: waiting for a condition without sleeping, and the size a test may have in this
// build.
#pragma once

#include "base/sanitizer.hpp"

#include <weft/go.hpp>

#include <chrono>
#include <cstdint>

namespace weft::test {

// An emulator and the sanitizers make everything ten to fifty times slower.
inline constexpr bool slow_build = base::sanitizer::active || sizeof(WEFT_EMULATOR) > 1;

// Returns: the first number, or the second in a build that is slow.
constexpr int scaled(int n, int n_if_slow) { return slow_build ? n_if_slow : n; }

// Explorations make a tenth of their runs then.
constexpr std::uint64_t runs(std::uint64_t n) { return slow_build ? n / 10 : n; }

// Asks for `condition` again and again, letting others run in between, until it holds.
// Returns: false if it never did within a time that is far longer than any correct run takes.
template <class Condition>
bool eventually(Condition condition,
                std::chrono::steady_clock::duration patience = std::chrono::seconds(30)) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    this_goroutine::yield();
  }
  return true;
}

}  // namespace weft::test
