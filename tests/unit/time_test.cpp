// Timers and tickers, mostly in bubbles: what happens when is exact there.
#include <weft/test.hpp>
#include <weft/time.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::clock;
using weft::test::bubble;
using weft::test::explore;

TEST(timer, delivers_the_time_when_it_is_due) {
  bubble([] {
    const auto start = clock::now();
    const weft::timer t(3h);
    const auto at = t.c().recv();
    EXPECT_EQ(*at, start + 3h);
    EXPECT_EQ(clock::now(), start + 3h);
    EXPECT_EQ(*weft::after(1min).recv(), start + 3h + 1min);
    EXPECT_EQ(*weft::after(-1min).recv(), start + 3h + 1min);
  });
}

TEST(timer, fires_in_the_order_of_time) {
  bubble([] {
    std::string order;
    weft::wait_group all;
    for (const int n : {5, 2, 8, 1, 9, 3}) {
      all.go([&order, n] {
        weft::after(std::chrono::milliseconds(n)).recv();
        order += std::to_string(n);
      });
    }
    all.wait();
    EXPECT_EQ(order, "123589");
  });
}

// Stop and reset say whether there was still something to stop, and leave no stale value.
TEST(timer, stop_tells_whether_it_was_in_time) {
  bubble([] {
    weft::timer t(1s);
    EXPECT_TRUE(t.stop());
    EXPECT_FALSE(t.stop());
    EXPECT_FALSE(t.reset(1s));
    weft::this_goroutine::sleep_for(2s);
    EXPECT_TRUE(t.stop()) << "the value was not received";
    EXPECT_FALSE(t.c().try_recv()) << "and is gone";
    t.reset(1s);
    t.c().recv();
    EXPECT_FALSE(t.stop()) << "the value was received";
    EXPECT_FALSE(t.reset(1s));
    EXPECT_TRUE(t.reset(5s));
    const auto start = clock::now();
    t.c().recv();
    EXPECT_EQ(clock::now(), start + 5s);
  });
}

TEST(timer, a_copy_is_a_handle_on_the_same_timer) {
  bubble([] {
    weft::timer a(1s);
    weft::timer b = a;
    EXPECT_TRUE(b.stop());
    EXPECT_FALSE(a.stop());
    EXPECT_EQ(a.c(), b.c());
  });
}

// Whatever a stop races with, its answer is right: false means that the value was received.
TEST(timer, stop_races_with_the_firing) {
  explore({.runs = 5'000}, [] {
    weft::timer t(1ms);
    bool received = false;
    weft::wait_group all;
    all.go([&] { received = weft::select(weft::recv(t.c()), weft::after(2ms, [] {})) == 0; });
    weft::this_goroutine::sleep_for(1ms);
    const bool stopped = t.stop();
    all.wait();
    EXPECT_NE(stopped, received);
  });
}

TEST(timer, resets_may_race) {
  explore({.runs = 3'000}, [] {
    weft::timer t(1ms);
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) all.go([&, i] { t.reset(std::chrono::milliseconds(5 + i)); });
    all.wait();
    t.stop();
  });
}

TEST(after_func, calls_in_a_goroutine_of_its_own) {
  bubble([] {
    int calls = 0;
    weft::timer t = weft::after_func(1s, [&, owned = std::make_unique<int>(5)] {
      calls += *owned;
      EXPECT_NE(weft::this_goroutine::id(), 1u);
    });
    EXPECT_FALSE(t.c());
    weft::this_goroutine::sleep_for(999ms);
    EXPECT_EQ(calls, 0);
    weft::this_goroutine::sleep_for(2ms);
    EXPECT_EQ(calls, 5);
    EXPECT_FALSE(t.stop());
    EXPECT_FALSE(t.reset(1s));
    weft::this_goroutine::sleep_for(2s);
    EXPECT_EQ(calls, 10);
    EXPECT_FALSE(t.reset(1s));
    EXPECT_TRUE(t.stop());
    weft::this_goroutine::sleep_for(2s);
    EXPECT_EQ(calls, 10);
    // Dropping the timer stops nothing.
    weft::after_func(1s, [&] { ++calls; });
    weft::this_goroutine::sleep_for(2s);
    EXPECT_EQ(calls, 11);
  });
}

TEST(after_func, is_not_called_after_a_stop_that_was_in_time) {
  explore({.runs = 5'000}, [] {
    int calls = 0;
    weft::timer t = weft::after_func(1ms, [&] { ++calls; });
    weft::this_goroutine::sleep_for(1ms);
    const bool stopped = t.stop();
    weft::this_goroutine::sleep_for(100ms);
    EXPECT_EQ(calls, stopped ? 0 : 1);
  });
}

TEST(ticker, ticks_without_drift_and_drops_what_nobody_received) {
  bubble([] {
    const auto start = clock::now();
    weft::ticker t(10ms);
    for (int i = 1; i <= 5; ++i) EXPECT_EQ(*t.c().recv(), start + i * 10ms);
    weft::this_goroutine::sleep_for(35ms);  // three ticks, of which one is kept
    EXPECT_EQ(*t.c().recv(), start + 60ms);
    EXPECT_EQ(*t.c().recv(), start + 90ms);
    t.reset(1s);
    const auto again = clock::now();
    EXPECT_EQ(*t.c().recv(), again + 1s);
    t.stop();
    EXPECT_EQ(weft::select(weft::recv(t.c()), weft::after(1h, [] {})), 1u);
  });
}

TEST(ticker, wants_a_positive_period) {
  EXPECT_THROW(weft::ticker(0s), std::invalid_argument);
  EXPECT_THROW(weft::ticker(-1s), std::invalid_argument);
  weft::ticker t(1h);
  EXPECT_THROW(t.reset(0s), std::invalid_argument);
}

// A timer that is still armed when the test ends was forgotten.
TEST(timer, one_that_is_left_behind_fails_an_exploration) {
  const auto r = weft::test::try_explore({.runs = 1}, [] { weft::after(1s); });
  EXPECT_NE(r.failure.find("timer is left behind"), std::string::npos) << r.report;
}

// ---- The real clock ----

TEST(timer, never_fires_early_and_works_from_plain_threads) {
  for (const auto d : {50us, 1000us, 5000us}) {
    const auto start = clock::now();
    weft::after(d).recv();
    EXPECT_GE(clock::now() - start, d);
  }
  weft::timer t(10s);
  EXPECT_TRUE(t.stop());
  std::atomic<bool> called{false};
  weft::after_func(1ms, [&] { called = true; });
  while (!called) std::this_thread::sleep_for(1ms);
}

TEST(timer, a_hundred_thousand_live_and_stopped_ones) {
  weft::run([] {
    std::vector<weft::timer> timers;
    constexpr int n = 100'000;
    timers.reserve(n);
    for (int i = 0; i < n; ++i) timers.emplace_back(1h + std::chrono::microseconds(i % 1000));
    int stopped = 0;
    for (weft::timer& t : timers) stopped += t.stop() ? 1 : 0;
    EXPECT_EQ(stopped, n);
  });
}

TEST(timer, many_goroutines_stop_and_reset_at_once) {
  const int before = weft::max_procs(8);
  weft::run([] {
    weft::wait_group all;
    std::atomic<int> fired{0};
    std::vector<weft::timer> shared;
    for (int i = 0; i < 4; ++i) shared.push_back(weft::after_func(50us, [&] { ++fired; }));
    for (int g = 0; g < 8; ++g) {
      all.go([&, g] {
        for (std::size_t i = 0; i < 2'000; ++i) {
          weft::timer& t = shared[(i + static_cast<std::size_t>(g)) % 4];
          if (i % 3 == 0) {
            t.stop();
          } else {
            t.reset(std::chrono::microseconds(i % 50));
          }
          if (i % 7 == 0) weft::this_goroutine::yield();
        }
      });
    }
    all.wait();
    for (weft::timer& t : shared) t.stop();
    EXPECT_GT(fired, 0);
    weft::this_goroutine::sleep_for(5ms);  // those on their way
  });
  weft::max_procs(before);
}

}  // namespace
