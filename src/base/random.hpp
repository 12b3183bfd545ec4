// random.hpp: the only source of random numbers in the runtime. Each processor owns a generator.
// Seeds come from the kernel, or from WEFT_DEBUG=seed=N; then every generator's sequence is the
// same in every run.
#pragma once

#include <cstdint>

namespace weft::base {

// splitmix64: 64 bits of state, a full period, and a good value from any seed, 0 included.
class random {
 public:
  explicit constexpr random(std::uint64_t seed = 0) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Returns: a number below `n`, each equally likely, except for a bias of n / 2^32. Requires: n >
  // 0.
  std::uint32_t below(std::uint32_t n) noexcept {
    return static_cast<std::uint32_t>(((next() >> 32) * n) >> 32);
  }

 private:
  std::uint64_t state_;
};

// Returns: a seed for generator number `index`.
std::uint64_t seed_for(std::uint32_t index) noexcept;

}  // namespace weft::base
