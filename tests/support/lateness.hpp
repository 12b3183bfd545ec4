// lateness.hpp: how late something was, many times, and whether that is too late.
//
// What a goroutine waits for a plain thread waits for too, in the same seconds. What the thread was
// late is the machine's own noise, and twice that is added to every limit. Even so a machine that
// others use stops a thread now and then when the other one does not wait; so the longest time that
// is judged is the third longest.
#pragma once

#include "eventually.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace weft::test {

struct lateness {
  using duration = std::chrono::steady_clock::duration;

  explicit lateness(std::vector<duration> all) : times(all.size()) {
    if (all.empty()) return;
    std::ranges::sort(all);
    median = all[all.size() / 2];
    p99 = all[std::min(all.size() * 99 / 100, all.size() - std::min<std::size_t>(all.size(), 3))];
    third_worst = all[all.size() - std::min<std::size_t>(all.size(), 3)];
    worst = all.back();
  }
  void print(const char* who) const {
    const auto us = [](duration d) {
      return static_cast<long>(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
    };
    std::printf("  %-25s %8ld %8ld %8ld %8zu\n", who, us(median), us(p99), us(worst), times);
  }

  std::size_t times;
  duration median{};
  duration p99{};
  duration third_worst{};
  duration worst{};
};

// How late something may be half of the times, all but one in a hundred times, and more than twice.
struct lateness_limits {
  std::chrono::microseconds median;
  std::chrono::microseconds p99;
  std::chrono::microseconds worst = std::chrono::hours(1);
};

// Prints how late goroutine and thread were and expects that the goroutine was not too late.
inline void expect_in_time(const lateness& goroutine, const lateness& thread, lateness_limits l) {
  goroutine.print("goroutine");
  thread.print("plain thread");
  ASSERT_GT(goroutine.times, 0u);
  constexpr int slowness = slow_build ? 5 : 1;
  EXPECT_LE(goroutine.median, slowness * l.median + 2 * thread.median);
  EXPECT_LE(goroutine.p99, slowness * l.p99 + 2 * thread.p99);
  EXPECT_LE(goroutine.third_worst, slowness * l.worst + 2 * thread.worst);
}

}  // namespace weft::test
