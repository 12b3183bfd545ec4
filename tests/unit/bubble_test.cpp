// bubble(): programs on a virtual clock.
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::bubble;

// An hour of timeouts takes no time, and everything happens in the order of its time.
TEST(bubble, time_jumps_to_the_next_timer) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<int> order;
  bubble([&] {
    weft::wait_group all;
    for (const int minutes : {50, 10, 40, 20, 30}) {
      all.go([&order, minutes] {
        weft::this_goroutine::sleep_for(std::chrono::minutes(minutes));
        order.push_back(minutes);
      });
    }
    all.wait();
  });
  EXPECT_EQ(order, (std::vector{10, 20, 30, 40, 50}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

// The example at the head of the header.
TEST(bubble, a_future_times_out_when_its_time_has_come) {
  bubble([] {
    auto reply = weft::async([] {
      weft::this_goroutine::sleep_for(1h);
      return 42;
    });
    EXPECT_EQ(reply.wait_for(59min), std::future_status::timeout);
    EXPECT_EQ(reply.get(), 42);
  });
}

// Deadlines on other clocks are as far away as those clocks say.
TEST(bubble, time_points_of_other_clocks_work) {
  bubble([] {
    weft::this_goroutine::sleep_until(std::chrono::steady_clock::now() + 3h);
    weft::this_goroutine::sleep_until(std::chrono::system_clock::now() + 3h);
  });
}

// wait() returns when the others have done what they can, and before time passes.
TEST(bubble, wait_lets_the_others_come_to_rest) {
  bubble([] {
    int steps = 0;
    bool slept = false;
    weft::wait_group all;
    all.go([&] {
      for (int i = 0; i < 10; ++i) {
        ++steps;
        weft::this_goroutine::yield();
      }
      weft::this_goroutine::sleep_for(1s);
      slept = true;
    });
    weft::test::wait();
    EXPECT_EQ(steps, 10);
    EXPECT_FALSE(slept);
    weft::this_goroutine::sleep_for(2s);
    EXPECT_TRUE(slept);
    all.wait();
  });
}

TEST(bubble, a_deadlock_is_thrown_with_who_waits_where) {
  try {
    bubble([] {
      weft::wait_group never;
      never.add(1);
      weft::go({.name = "helper"}, [&] { never.wait(); });
      never.wait();
    });
    FAIL() << "no deadlock";
  } catch (const weft::test::failed& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("deadlock"), std::string::npos) << what;
    EXPECT_NE(what.find("main: wait_group wait (bubble_test.cpp:"), std::string::npos) << what;
    // Where it stands; or, if the call was its last and took its place, where it was started.
    const std::size_t helper = what.find("helper.1: wait_group wait (");
    ASSERT_NE(helper, std::string::npos) << what;
    EXPECT_NE(what.find("bubble_test.cpp:", helper), std::string::npos) << what;
  }
}

TEST(bubble, goroutines_left_behind_are_named) {
  try {
    bubble([] {
      static weft::wait_group never;  // outlives the failure, as its waiter does
      never.add(1);
      weft::go({.name = "forgotten"}, [] { never.wait(); });
    });
    FAIL() << "nobody noticed";
  } catch (const weft::test::failed& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("left behind"), std::string::npos) << what;
    EXPECT_NE(what.find("forgotten.1"), std::string::npos) << what;
  }
}

// As in Go, time stops when the bubble's main goroutine has ended.
TEST(bubble, a_sleeper_is_left_behind_too) {
  EXPECT_THROW(bubble([] { weft::go([] { weft::this_goroutine::sleep_for(1ms); }); }),
               weft::test::failed);
}

TEST(bubble, what_main_throws_leaves_it) {
  EXPECT_THROW(bubble([] { throw std::out_of_range("x"); }), std::out_of_range);
}

TEST(bubble, an_exception_of_any_goroutine_leaves_it) {
  EXPECT_THROW(bubble([] {
                 weft::wait_group all;
                 weft::go([] { throw std::out_of_range("x"); });
                 weft::this_goroutine::sleep_for(1s);
               }),
               std::out_of_range);
}

TEST(bubble, the_whole_of_go_hpp_works_inside) {
  static int destroyed = 0;
  destroyed = 0;
  struct counted {
    int n = 5;
    ~counted() { ++destroyed; }
  };
  static weft::local<int> number{7};
  bubble([] {
    EXPECT_EQ(weft::this_goroutine::id(), 1u);
    EXPECT_EQ(weft::num_goroutine(), 1u);
    EXPECT_GE(weft::max_procs(), 1);
    EXPECT_THROW(weft::run([] {}), std::logic_error);
    *number = 8;
    weft::wait_group all;
    all.go([] {
      EXPECT_EQ(*number, 7);
      const counted c;
      weft::this_goroutine::exit();
    });
    weft::go({.name = "big", .stack_size = 4 << 20}, [&all] {
      volatile char room[2 << 20];
      room[0] = 1;
      EXPECT_EQ(room[0], 1);
    });
    all.wait();
    EXPECT_EQ(destroyed, 1);
    EXPECT_EQ(*number, 8);
    EXPECT_EQ(weft::blocking([] { return 3; }), 3);
    auto broken = weft::async([]() -> int { weft::this_goroutine::exit(); });
    EXPECT_THROW(broken.get(), std::future_error);
    auto thrower = weft::async([]() -> int { throw std::runtime_error("boom"); });
    try {
      thrower.get();
      ADD_FAILURE();
    } catch (const std::runtime_error& e) {
      weft::this_goroutine::yield();  // in a handler
      EXPECT_STREQ(e.what(), "boom");
    }
  });
}

TEST(bubble, it_can_be_used_in_a_goroutine_and_by_many_threads_at_once) {
  weft::run([] { bubble([] { weft::this_goroutine::sleep_for(1h); }); });
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&done] {
      bubble([&done] {
        weft::wait_group all;
        for (int j = 0; j < 10; ++j) {
          all.go([&done] {
            weft::this_goroutine::sleep_for(1min);
            ++done;
          });
        }
        all.wait();
      });
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(done, 40);
}

TEST(bubble, does_not_nest) {
  bubble([] { EXPECT_THROW(bubble([] {}), std::logic_error); });
  EXPECT_THROW(weft::test::wait(), std::logic_error);
}

TEST(bubble, two_thousand_goroutines_sleep) {
  std::size_t woken = 0;
  bubble([&] {
    weft::wait_group all;
    for (int i = 0; i < 2'000; ++i) {
      all.go([&woken, i] {
        weft::this_goroutine::sleep_for(std::chrono::seconds(i % 100));
        ++woken;
      });
    }
    all.wait();
  });
  EXPECT_EQ(woken, 2'000u);
}

TEST(bubble, a_ticker_nobody_listens_to_hides_no_deadlock) {
  EXPECT_THROW(bubble([] {
                 const weft::ticker k(1s);
                 (void)weft::chan<int>().recv();
               }),
               weft::test::failed);
}

TEST(bubble, does_not_go_on_for_ever) {
  EXPECT_THROW(bubble(
                   [] {
                     for (;;) weft::this_goroutine::sleep_for(1h);
                   },
                   {.steps = 100'000}),
               weft::test::failed);
}

TEST(bubble, its_channels_timers_and_contexts_are_its_own) {
  std::optional<weft::chan<int>> leaked;
  std::optional<weft::timer> timer;
  std::optional<weft::ticker> ticker;
  std::optional<weft::timer> function;
  std::optional<weft::context> ctx;
  bubble([&] {
    leaked.emplace(1);
    leaked->send(1);
    timer.emplace(1h);
    timer->stop();
    ticker.emplace(1h);
    ticker->stop();
    function.emplace(weft::after_func(1h, [] {}));
    function->stop();
    ctx.emplace(weft::with_cancel(weft::context::background()).ctx);
  });
  EXPECT_THROW((void)leaked->recv(), std::logic_error);
  EXPECT_THROW(leaked->send(2), std::logic_error);
  EXPECT_THROW((void)leaked->try_recv(), std::logic_error);
  EXPECT_THROW(weft::select(weft::recv(*leaked), weft::otherwise()), std::logic_error);
  EXPECT_THROW((void)timer->c().recv(), std::logic_error);
  EXPECT_THROW(weft::select(weft::recv(ctx->done()), weft::otherwise()), std::logic_error);
  const weft::chan<std::string> outside;
  std::string text = "still here";
  EXPECT_THROW((void)outside.recv(*ctx), std::logic_error);
  EXPECT_THROW((void)outside.send(*ctx, std::move(text)), std::logic_error);
  EXPECT_EQ(text, "still here");
  EXPECT_FALSE(timer->stop());
  EXPECT_FALSE(function->stop());
  EXPECT_THROW(timer->reset(1h), std::logic_error);
  EXPECT_THROW(function->reset(1h), std::logic_error);
  ticker.reset();  // its destructor stops it
  weft::wait_group all;
  all.go([&] { EXPECT_THROW((void)leaked->recv(), std::logic_error); });
  all.wait();
}

// A timer of the program that was set in a bubble would stay in a heap that goes with the bubble.
TEST(bubble, timers_of_the_program_cannot_be_set_in_it) {
  weft::timer timer(1h);
  weft::ticker ticker(1h);
  weft::timer function = weft::after_func(1h, [] {});
  std::optional<weft::timer> of_another;
  bubble([&] {
    of_another.emplace(weft::after_func(1h, [] {}));
    of_another->stop();
    EXPECT_THROW(timer.reset(1ms), std::logic_error);
    EXPECT_THROW(ticker.reset(1ms), std::logic_error);
    EXPECT_THROW(function.reset(1ms), std::logic_error);
  });
  // The stop shows that a reset that was refused has changed nothing.
  bubble([&] { EXPECT_TRUE(timer.stop()); });
  EXPECT_TRUE(function.stop());
  EXPECT_FALSE(timer.reset(0s));
  EXPECT_TRUE(timer.c().recv());
  function.reset(1h);
  EXPECT_TRUE(function.stop());
  // Nor can timers of another bubble, whose heap is elsewhere: on the stack of another thread.
  std::thread([&] {
    bubble([&] {
      EXPECT_FALSE(of_another->stop());
      EXPECT_THROW(of_another->reset(1h), std::logic_error);
    });
  }).join();
}

// A goroutine that polls and yields sees timers that are due.
TEST(bubble, what_is_due_comes_beside_those_who_yield) {
  bubble([] {
    weft::timer t(0s);
    while (!t.c().try_recv()) weft::this_goroutine::yield();
    bool called = false;
    const auto f = weft::after_func(0s, [&] { called = true; });
    while (!called) weft::this_goroutine::yield();
  });
}

// A signal comes from outside, from where a bubble's channels and contexts cannot be used.
TEST(bubble, no_signals_come_in) {
  bubble([] {
    EXPECT_THROW(weft::os::notify(weft::chan<int>(1), {SIGUSR1}), std::logic_error);
    EXPECT_THROW((void)weft::os::notify_context(weft::context::background(), {SIGUSR1}),
                 std::logic_error);
  });
  weft::chan<int> escaped(nullptr);
  bubble([&] { escaped = weft::chan<int>(1); });
  EXPECT_THROW(weft::os::notify(escaped, {SIGUSR1}), std::logic_error);
}

}  // namespace
