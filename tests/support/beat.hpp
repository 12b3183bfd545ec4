// beat.hpp: whether goroutines run in time while others are up to something.
//
// A goroutine wants to wake once a period and notes how late it is each time; a thread does the
// same beside it, so that a machine which is busy with others is not held against weft. Beats are
// due at fixed times, from the moment the beat is made until it is stopped, whether the one before
// was late or not: who stands still for 50 ms is late 50 times if the period is 1 ms, and cannot
// hide it from a percentile.
#pragma once

#include "lateness.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <thread>
#include <vector>

namespace weft::test {

class beat {
 public:
  explicit beat(std::chrono::milliseconds period = std::chrono::milliseconds(1))
      : period_(period), thread_([this] { keep(of_thread_, sleep_thread); }) {
    all_.go([this] { keep(of_goroutine_, sleep_goroutine); });
  }
  beat(const beat&) = delete;
  beat& operator=(const beat&) = delete;
  ~beat() { stop(); }

  using limits = lateness_limits;

  // Ends it, prints how it went and expects that it was kept. For plain threads.
  void expect_kept(limits l) {
    stop();
    std::printf("beat of %2ld ms, late by (us):  median      p99    worst    beats\n",
                static_cast<long>(period_.count()));
    expect_in_time(lateness(of_goroutine_), lateness(of_thread_), l);
  }

 private:
  using clock = std::chrono::steady_clock;
  using samples = std::vector<clock::duration>;

  static void sleep_goroutine(clock::time_point due) { this_goroutine::sleep_until(due); }
  static void sleep_thread(clock::time_point due) { std::this_thread::sleep_until(due); }

  template <class Sleep>
  void keep(samples& into, Sleep sleep_until) const {
    constexpr std::size_t beats_max = 200'000;  // more than any test may last
    into.reserve(1'000);
    for (auto due = begin_ + period_;
         due < end_.load(std::memory_order_relaxed) && into.size() < beats_max; due += period_) {
      sleep_until(due);
      into.push_back(clock::now() - due);
    }
  }

  void stop() {
    if (!thread_.joinable()) return;
    end_.store(clock::now(), std::memory_order_relaxed);
    all_.wait();
    thread_.join();
  }

  const std::chrono::milliseconds period_;
  const clock::time_point begin_ = clock::now();
  std::atomic<clock::time_point> end_{clock::time_point::max()};  // relaxed: it is all that is said
  samples of_goroutine_;  // its own until all_.wait() returns
  samples of_thread_;     // its own until it is joined
  wait_group all_;
  std::thread thread_;
};

}  // namespace weft::test
