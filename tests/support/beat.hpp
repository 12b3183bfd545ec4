// beat.hpp: whether goroutines run in time while others are up to something.
//
// A goroutine wants to wake once a millisecond and notes how late it is each time; a thread does
// the same beside it, so that a machine which is busy with others is not held against weft. Beats
// are due at fixed times, whether the one before was late or not: who stands still for 50 ms is
// late 50 times, and cannot hide it from a percentile.
#pragma once

#include "eventually.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <thread>
#include <vector>

namespace weft::test {

class beat {
 public:
  beat() : thread_([this] { keep(of_thread_, sleep_thread); }) {
    all_.go([this] { keep(of_goroutine_, sleep_goroutine); });
  }
  beat(const beat&) = delete;
  beat& operator=(const beat&) = delete;
  ~beat() { stop(); }

  // How late half of the beats may be, and all but one in a hundred.
  struct limits {
    std::chrono::milliseconds median;
    std::chrono::milliseconds p99;
  };

  // Ends it, prints how it went and expects that it was kept. For plain threads.
  void expect_kept(limits l) {
    stop();
    const lateness goroutine(of_goroutine_);
    const lateness thread(of_thread_);
    std::printf("beat of 1 ms, late by (us):   median      p99    worst    beats\n");
    goroutine.print("goroutine");
    thread.print("plain thread");
    ASSERT_GT(goroutine.beats, 0u);
    constexpr int slowness = slow_build ? 5 : 1;
    EXPECT_LE(goroutine.median, slowness * l.median + 2 * thread.median);
    EXPECT_LE(goroutine.p99, slowness * l.p99 + 2 * thread.p99);
  }

 private:
  using clock = std::chrono::steady_clock;
  using samples = std::vector<clock::duration>;

  struct lateness {
    explicit lateness(samples s) : beats(s.size()) {
      if (s.empty()) return;
      std::ranges::sort(s);
      median = s[s.size() / 2];
      p99 = s[s.size() * 99 / 100];
      worst = s.back();
    }
    void print(const char* who) const {
      const auto us = [](clock::duration d) {
        return static_cast<long>(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
      };
      std::printf("  %-25s %8ld %8ld %8ld %8zu\n", who, us(median), us(p99), us(worst), beats);
    }

    std::size_t beats;
    clock::duration median{};
    clock::duration p99{};
    clock::duration worst{};
  };

  static void sleep_goroutine(clock::time_point due) { this_goroutine::sleep_until(due); }
  static void sleep_thread(clock::time_point due) { std::this_thread::sleep_until(due); }

  template <class Sleep>
  void keep(samples& into, Sleep sleep_until) const {
    constexpr std::size_t beats_max = 200'000;  // more than any test may last
    into.reserve(1'000);
    for (auto due = clock::now();
         !over_.load(std::memory_order_relaxed) && into.size() < beats_max;) {
      due += std::chrono::milliseconds(1);
      sleep_until(due);
      into.push_back(clock::now() - due);
    }
  }

  void stop() {
    over_.store(true, std::memory_order_relaxed);
    all_.wait();
    if (thread_.joinable()) thread_.join();
  }

  std::atomic<bool> over_{false};  // relaxed: nothing else is passed along
  samples of_goroutine_;           // its own until all_.wait() returns
  samples of_thread_;              // its own until it is joined
  wait_group all_;
  std::thread thread_;
};

}  // namespace weft::test
