// group, pool and single_flight.
#include <weft/sync.hpp>
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::bubble;
using weft::test::explore;

TEST(group, waits_for_all_and_throws_the_first_exception) {
  explore({.runs = 1'000}, [] {
    weft::group g;
    int ended = 0;
    for (int i = 0; i < 3; ++i) {
      g.go([&, i] {
        ++ended;
        if (i == 1) throw std::runtime_error("one");
      });
    }
    EXPECT_THROW(g.wait(), std::runtime_error);
    EXPECT_EQ(ended, 3);
    EXPECT_TRUE(g.ctx().err());
  });
}

TEST(group, an_exception_cancels_the_others) {
  bubble([] {
    weft::group g;
    std::error_code seen;
    g.go([&, ctx = g.ctx()] { seen = weft::this_goroutine::sleep_for(ctx, 1h); });
    g.go([] {
      weft::this_goroutine::sleep_for(1s);
      throw std::runtime_error("x");
    });
    EXPECT_THROW(g.wait(), std::runtime_error);
    EXPECT_EQ(seen, weft::errc::canceled);
    try {
      std::rethrow_exception(g.ctx().cause());
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "x");
    }
  });
}

TEST(group, its_destructor_cancels_and_waits) {
  explore({.runs = 1'000}, [] {
    bool ended = false;
    {
      weft::group g;
      g.go([&, ctx = g.ctx()] {
        ctx.done().recv();
        ended = true;
      });
    }
    EXPECT_TRUE(ended);
  });
}

TEST(group, ends_with_its_parent) {
  auto [parent, cancel] = weft::with_cancel(weft::context::background());
  weft::group g(parent);
  g.go([ctx = g.ctx()] { ctx.done().recv(); });
  cancel();
  g.wait();
}

TEST(group, a_limit_holds_back_whoever_starts) {
  explore({.runs = 1'000}, [] {
    weft::group g;
    g.set_limit(2);
    int running = 0;
    int most = 0;
    for (int i = 0; i < 5; ++i) {
      g.go([&] {
        most = std::max(most, ++running);
        weft::this_goroutine::yield();
        --running;
      });
    }
    g.wait();
    EXPECT_LE(most, 2);
  });
  bubble([] {
    weft::group g;
    EXPECT_THROW(g.set_limit(0), std::invalid_argument);
    g.set_limit(1);
    const weft::chan<int> gate;
    EXPECT_TRUE(g.try_go([gate] { gate.recv(); }));
    EXPECT_FALSE(g.try_go([] {}));
    EXPECT_THROW(g.set_limit(2), std::logic_error);
    gate.send(1);
    g.wait();
    EXPECT_TRUE(g.try_go([] {}));
    g.wait();
  });
}

TEST(group, counts_a_goroutine_that_exits) {
  bubble([] {
    weft::group g;
    g.go([] { weft::this_goroutine::exit(); });
    g.wait();
  });
}

TEST(pool, gives_back_what_was_put) {
  int made = 0;
  weft::pool<std::unique_ptr<int>> p([&] { return std::make_unique<int>(++made); });
  auto a = p.get();
  const int* const address = a.get();
  p.put(std::move(a));
  EXPECT_EQ(p.get().get(), address);
  EXPECT_EQ(made, 1);
}

TEST(pool, never_gives_one_object_to_two) {
  explore({.runs = 2'000}, [] {
    weft::pool<std::shared_ptr<int>> p([] { return std::make_shared<int>(0); });
    weft::wait_group all;
    for (int g = 0; g < 3; ++g) {
      all.go([&] {
        for (int i = 0; i < 2; ++i) {
          auto mine = p.get();
          EXPECT_EQ(++*mine, 1);
          weft::test::point();
          --*mine;
          p.put(std::move(mine));
        }
      });
    }
    all.wait();
  });
}

TEST(single_flight, calls_once_for_all_who_come_meanwhile) {
  bubble([] {
    weft::single_flight<std::string, int> flights;
    int calls = 0;
    int shared = 0;
    weft::wait_group all;
    for (int i = 0; i < 5; ++i) {
      all.go([&] {
        const auto [value, was_shared] = flights.run("key", [&] {
          ++calls;
          weft::this_goroutine::sleep_for(1s);
          return 42;
        });
        EXPECT_EQ(value, 42);
        shared += was_shared ? 1 : 0;
      });
    }
    all.wait();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(shared, 5);
    EXPECT_FALSE(flights.run("key", [] { return 1; }).second);
  });
}

TEST(single_flight, shares_exceptions_and_forgets) {
  explore({.runs = 1'000}, [] {
    weft::single_flight<int, int> flights;
    int caught = 0;
    weft::wait_group all;
    for (int i = 0; i < 3; ++i) {
      all.go([&] {
        try {
          flights.run(1, []() -> int {
            weft::this_goroutine::yield();
            throw std::runtime_error("x");
          });
        } catch (const std::runtime_error&) {
          ++caught;
        }
      });
    }
    all.go([&] { flights.forget(1); });
    all.wait();
    EXPECT_EQ(caught, 3);
  });
}

}  // namespace
