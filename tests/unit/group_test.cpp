// group, pool and single_flight.
#include "eventually.hpp"

#include <weft/sync.hpp>
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

// Allocations of this thread until one fails; 0: none will.
thread_local int allocations_left = 0;
// Called by the allocation that fails.
thread_local const std::function<void()>* at_failure = nullptr;

}  // namespace

void* operator new(std::size_t bytes) {
  if (allocations_left > 0 && --allocations_left == 0) {
    (*at_failure)();
    throw std::bad_alloc();
  }
  if (void* const p = std::malloc(bytes != 0 ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

using namespace std::chrono_literals;
using weft::test::bubble;
using weft::test::explore;

TEST(group, waits_for_all_and_throws_the_first_exception) {
  explore({.runs = weft::test::runs(1'000)}, [] {
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

// Of many exceptions the first in time counts, for wait and as the cause; the others are dropped.
TEST(group, the_first_exception_in_time_counts) {
  bubble([] {
    weft::group g;
    for (const int n : {3, 1, 2}) {
      g.go([n] {
        weft::this_goroutine::sleep_for(std::chrono::seconds(n));
        throw std::runtime_error("after " + std::to_string(n));
      });
    }
    try {
      g.wait();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "after 1");
    }
    try {
      std::rethrow_exception(g.ctx().cause());
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "after 1");
    }
  });
  weft::group unheard;  // its destructor drops it
  unheard.go([] { throw std::runtime_error("nobody asks"); });
}

// Its context is for its goroutines: it lives until the last of them has ended, and no longer.
TEST(group, its_context_ends_when_wait_returns) {
  explore({.runs = weft::test::runs(1'000)}, [] {
    weft::group g;
    const weft::context c = g.ctx();
    for (int i = 0; i < 2; ++i) {
      g.go([c] {
        weft::this_goroutine::yield();
        EXPECT_FALSE(c.err());
      });
    }
    g.wait();
    EXPECT_EQ(c.err(), weft::errc::canceled);
    EXPECT_FALSE(c.done().recv());
  });
}

TEST(group, its_destructor_cancels_and_waits) {
  explore({.runs = weft::test::runs(1'000)}, [] {
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

TEST(group, a_limit_holds_back_the_goroutine_that_starts_another) {
  explore({.runs = weft::test::runs(1'000)}, [] {
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
    g.set_limit(0);
    EXPECT_FALSE(g.try_go([] {})) << "nothing can be started";
    g.set_limit(weft::group::no_limit);
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(g.try_go([] { weft::this_goroutine::yield(); }));
    g.wait();
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
  explore({.runs = weft::test::runs(2'000)}, [] {
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

// As above on real processors: every object is with one goroutine or in the pool, never both.
TEST(pool, never_gives_one_object_to_two_on_real_processors) {
  const int before = weft::max_procs(8);
  weft::run([] {
    struct object {
      std::atomic<int> users{0};
      int plain = 0;  // its holder writes it
    };
    std::atomic<int> made{0};
    std::atomic<int> total{0};
    weft::pool<std::shared_ptr<object>> p([&] {
      ++made;
      return std::make_shared<object>();
    });
    constexpr int goroutines = 10;
    constexpr int turns = 1'000;
    weft::wait_group all;
    for (int g = 0; g < goroutines; ++g) {
      all.go([&] {
        for (int i = 0; i < turns; ++i) {
          auto mine = p.get();
          EXPECT_EQ(++mine->users, 1);
          ++mine->plain;
          if (i % 16 == 0) weft::this_goroutine::yield();
          --mine->users;
          p.put(std::move(mine));
        }
      });
    }
    all.wait();
    EXPECT_LE(made, goroutines);
    for (int i = made; i > 0; --i) total += p.get()->plain;
    EXPECT_EQ(total, goroutines * turns);
  });
  weft::max_procs(before);
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

// Calls for other keys are other calls; and after forget the next one does not join the call that
// is under way, whose end must not make it forgotten in turn.
TEST(single_flight, another_key_and_a_forgotten_one_call_anew) {
  bubble([] {
    weft::single_flight<std::string, int> flights;
    const auto call = [&](const char* key, int value, std::chrono::seconds time) {
      return flights.run(key, [=] {
        weft::this_goroutine::sleep_for(time);
        return value;
      });
    };
    weft::wait_group all;
    all.go([&] { EXPECT_EQ(call("a", 1, 10s), std::pair(1, false)); });
    all.go([&] { EXPECT_EQ(call("b", 2, 10s), std::pair(2, false)); });
    weft::test::wait();
    flights.forget("a");
    all.go([&] { EXPECT_EQ(call("a", 3, 20s), std::pair(3, true)); });
    weft::this_goroutine::sleep_for(15s);  // the first has landed
    all.go([&] { EXPECT_EQ(call("a", 4, 1s), std::pair(3, true)); });
    all.wait();
    EXPECT_EQ(call("a", 5, 1s), std::pair(5, false));
  });
}

// A call that ends its goroutine has nothing to share: who waits for it is told, and the next one
// calls anew.
TEST(single_flight, a_call_that_ends_its_goroutine_keeps_nobody_waiting) {
  bubble([] {
    weft::single_flight<int, int> flights;
    weft::wait_group all;
    all.go([&] {
      flights.run(1, []() -> int {
        weft::this_goroutine::sleep_for(1s);
        weft::this_goroutine::exit();
      });
      ADD_FAILURE() << "it has ended";
    });
    weft::test::wait();
    for (int i = 0; i < 2; ++i) {
      all.go([&] { EXPECT_THROW(flights.run(1, [] { return 1; }), std::future_error); });
    }
    all.wait();
    EXPECT_EQ(flights.run(1, [] { return 2; }), std::pair(2, false));
  });
}

TEST(single_flight, shares_exceptions_and_forgets) {
  explore({.runs = weft::test::runs(1'000)}, [] {
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

// The first caller's end must not take the result from the others, nor call the function twice.
TEST(single_flight, a_context_ends_the_wait_of_its_caller_only) {
  bubble([] {
    weft::single_flight<std::string, int> flights;
    int calls = 0;
    const auto slow = [&calls] {
      ++calls;
      weft::this_goroutine::sleep_for(10s);
      return 42;
    };
    const auto [ctx, cancel] = weft::with_timeout(weft::context::background(), 1s);
    weft::wait_group all;
    all.go([&, c = ctx] {
      EXPECT_EQ(flights.run(c, "key", slow).error(), weft::errc::deadline_exceeded);
    });
    weft::test::wait();
    all.go([&] {
      const auto got = flights.run(weft::context::background(), "key", slow);
      ASSERT_TRUE(got);
      EXPECT_EQ(*got, std::pair(42, true));
    });
    all.go([&] { EXPECT_EQ(flights.run("key", slow), std::pair(42, true)); });
    all.wait();
    EXPECT_EQ(calls, 1);
    const auto again = flights.run(weft::context::background(), "key", slow);
    EXPECT_EQ(again.value(), std::pair(42, false));
    EXPECT_EQ(calls, 2);
  });
}

// A call that runs in its caller's goroutine cannot be abandoned: a goroutine that waits for it
// with a context gives up alone.
TEST(single_flight, a_context_also_ends_the_wait_for_a_call_without_one) {
  bubble([] {
    weft::single_flight<int, int> flights;
    const auto [ctx, cancel] = weft::with_timeout(weft::context::background(), 1s);
    weft::wait_group all;
    all.go([&] {
      const auto got = flights.run(1, [] {
        weft::this_goroutine::sleep_for(10s);
        return 42;
      });
      EXPECT_EQ(got, std::pair(42, true));
    });
    weft::test::wait();
    EXPECT_EQ(flights.run(ctx, 1, [] { return 1; }).error(), weft::errc::deadline_exceeded);
    EXPECT_EQ(flights.run(weft::context::background(), 1, [] { return 1; }).value().first, 42);
    all.wait();
  });
}

// When all callers have given up, the context of the call ends, and its result is not given to
// later callers. The call may outlive the single_flight.
TEST(single_flight, the_last_one_to_give_up_ends_the_context_of_the_call) {
  bubble([] {
    const weft::context_key<int> number{"number"};
    const auto [ctx, cancel] =
        weft::with_cancel(weft::with_value(weft::context::background(), number, 7));
    std::vector<std::error_code> ends;
    {
      weft::single_flight<int, int> flights;
      weft::wait_group all;
      for (int i = 0; i < 3; ++i) {
        all.go([&, c = ctx] {
          const auto got = flights.run(c, 1, [&](const weft::context& wanted) {
            EXPECT_EQ(*wanted.value(number), 7);
            ends.push_back(weft::this_goroutine::sleep_for(wanted, 1h));
            weft::this_goroutine::sleep_for(1h);
            return 1;
          });
          EXPECT_EQ(got.error(), weft::errc::canceled);
        });
      }
      weft::test::wait();
      cancel();
      all.wait();
      weft::test::wait();
      EXPECT_EQ(ends, std::vector{weft::make_error_code(weft::errc::canceled)});
      EXPECT_EQ(flights.run(1, [] { return 2; }), std::pair(2, false));
      bool called = false;
      EXPECT_FALSE(flights.run(ctx, 1, [&] { return called = true; }));
      EXPECT_FALSE(called);
    }
    weft::this_goroutine::sleep_for(2h);
  });
}

// Where the cancel meets the landing, each caller gets the value, the exception or its context's
// error, and no call is left over.
TEST(single_flight, each_caller_gets_the_result_or_the_end_of_its_context) {
  explore({.runs = weft::test::runs(1'000)}, [] {
    weft::single_flight<int, int> flights;
    const auto [ctx, cancel] = weft::with_cancel(weft::context::background());
    int caught = 0;
    int ended = 0;
    weft::wait_group all;
    const auto call = [&](const weft::context& c) {
      try {
        const auto got = flights.run(c, 1, []() -> int {
          weft::this_goroutine::yield();
          throw std::runtime_error("x");
        });
        EXPECT_EQ(got.error(), weft::errc::canceled);
        ++ended;
      } catch (const std::runtime_error&) {
        ++caught;
      }
    };
    for (int i = 0; i < 2; ++i) all.go([&, c = ctx] { call(c); });
    all.go([&] { call(weft::context::background()); });
    all.go([&, stop = cancel] { stop(); });
    all.wait();
    EXPECT_EQ(caught + ended, 3);
    EXPECT_GE(caught, 1);
  });
}

TEST(single_flight, a_call_with_a_context_that_ends_its_goroutine_keeps_nobody_waiting) {
  bubble([] {
    weft::single_flight<int, int> flights;
    EXPECT_THROW((void)flights.run(weft::context::background(), 1,
                                   []() -> int { weft::this_goroutine::exit(); }),
                 std::future_error);
    EXPECT_EQ(flights.run(weft::context::background(), 1, [] { return 2; }).value(),
              std::pair(2, false));
  });
}

// A key whose copying lets the second allocation after it fail: the first is that of the flight,
// the second that of the context for its call.
struct scarce_key {
  scarce_key() = default;
  scarce_key(const scarce_key&) { allocations_left = 2; }
  bool operator<(const scarce_key&) const noexcept { return false; }
};

// Without memory there may be no context that a caller who gives up could cancel.
TEST(single_flight, a_caller_gives_up_a_call_for_which_there_was_no_memory) {
  bubble([] {
    weft::single_flight<scarce_key, int> flights;
    const auto [ctx, cancel] = weft::with_cancel(weft::context::background());
    const std::function<void()> give_up = [stop = cancel] { stop(); };
    at_failure = &give_up;
    const auto got = flights.run(ctx, scarce_key(), [] { return 1; });
    EXPECT_EQ(allocations_left, 0);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error(), weft::errc::canceled);
  });
}

}  // namespace
