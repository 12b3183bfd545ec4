// burn.hpp: work that only computes, and what it has cost.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace bench {

// A dependent chain of n multiply-adds, so that neither compiler nor processor can take a short
// cut: the same few cycles each in every language.
[[gnu::always_inline]] inline std::uint64_t multiply_add(std::uint64_t x, int n) {
  for (int i = 0; i < n; ++i) x = x * 6364136223846793005u + 1;
  return x;
}

// The CPU time of this process until now.
inline double cpu_ms() {
  rusage r{};
  getrusage(RUSAGE_SELF, &r);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(r.ru_utime) + ms(r.ru_stime);
}

}  // namespace bench
