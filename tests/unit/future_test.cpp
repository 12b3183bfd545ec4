// future_test.cpp: async and what it delivers, to goroutines and to plain threads.
#include "runtime_fixture.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::eventually;
using weft::test::procs_scope;
using weft::test::runtime_test;
using weft::test::scaled;

class future : public runtime_test {};

template <class F>
std::optional<std::future_errc> future_error_of(F f) {
  try {
    f();
  } catch (const std::future_error& e) {
    return static_cast<std::future_errc>(e.code().value());
  }
  return std::nullopt;
}

// A move-only handle, as std::future is: two owners would both take the one result.
static_assert(!std::is_copy_constructible_v<weft::future<int>>);
static_assert(!std::is_copy_assignable_v<weft::future<int>>);
static_assert(std::is_nothrow_move_constructible_v<weft::future<int>>);
static_assert(std::is_nothrow_move_assignable_v<weft::future<int>>);
static_assert(std::is_nothrow_default_constructible_v<weft::future<void>>);

// The type of the result is that of the call with decayed arguments.
static_assert(std::is_same_v<decltype(weft::async([] { return 1; })), weft::future<int>>);
static_assert(std::is_same_v<decltype(weft::async([] {})), weft::future<void>>);
static_assert(std::is_same_v<decltype(weft::async([](int& x) -> int& { return x; },
                                                  std::declval<std::reference_wrapper<int>>())),
                             weft::future<int&>>);

// The plainest use: what the function returns comes out of get, in a goroutine or in a thread.
TEST_F(future, get_delivers_the_value) {
  const auto look = [] {
    EXPECT_EQ(weft::async([] { return 7; }).get(), 7);
    EXPECT_EQ(weft::async([](int a, int b) { return a - b; }, 5, 3).get(), 2);
    EXPECT_EQ(weft::async([](std::string s) { return s + "!"; }, "array").get(), "array!");
  };
  look();
  weft::run(look);
}

// A reference result is the object itself, not a copy of it.
TEST_F(future, get_delivers_a_reference) {
  weft::run([] {
    int x = 1;
    weft::future<int&> f = weft::async([&]() -> int& { return x; });
    int& got = f.get();
    EXPECT_EQ(&got, &x);
    weft::future<const int&> c = weft::async([&]() -> const int& { return x; });
    EXPECT_EQ(&c.get(), &x);
  });
}

// Nothing is a result too: get says that it is done, and everything before is visible.
TEST_F(future, get_of_void_waits) {
  weft::run([] {
    int x = 0;
    weft::async([&] { x = 5; }).get();
    EXPECT_EQ(x, 5);
  });
}

// Results, callables and arguments need only be movable.
TEST_F(future, moves_what_can_only_be_moved) {
  weft::run([] {
    auto f = weft::async(
        [held = std::make_unique<int>(1)](std::unique_ptr<int> given) {
          return std::make_unique<int>(*held + *given);
        },
        std::make_unique<int>(2));
    EXPECT_EQ(*f.get(), 3);
  });
}

struct no_default {
  explicit no_default(int v) : value(v) {}
  int value;
};

// A result type need not be default-constructible or assignable.
TEST_F(future, takes_results_without_default_constructor) {
  weft::run([] {
    EXPECT_EQ(weft::async([] { return no_default(4); }).get().value, 4);
    const auto constant = weft::async([]() -> const no_default { return no_default(5); }).get();
    EXPECT_EQ(constant.value, 5);
  });
}

// An exception goes to the caller of get(), with its type, and does not end the process.
TEST_F(future, get_throws_what_the_goroutine_threw) {
  const auto look = [] {
    auto f = weft::async([]() -> int { throw std::out_of_range("far"); });
    try {
      f.get();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::out_of_range& e) {
      EXPECT_STREQ(e.what(), "far");
    }
    EXPECT_FALSE(f.valid());
    EXPECT_THROW(weft::async([] { throw 3; }).get(), int);
    EXPECT_THROW(weft::async([]() -> int& { throw std::string("x"); }).get(), std::string);
  };
  look();
  weft::run(look);
}

// A result whose own move throws is an exception like any other.
TEST_F(future, an_exception_from_the_move_of_the_result_is_delivered) {
  struct bad_move {
    bad_move() = default;
    bad_move(bad_move&&) { throw std::runtime_error("move"); }
  };
  struct holder {
    static bad_move make(bad_move* from) { return std::move(*from); }
  };
  weft::run([] {
    bad_move b;
    auto f = weft::async(&holder::make, &b);
    EXPECT_THROW((void)f.get(), std::runtime_error);
  });
}

// get may be called once; afterwards, and on an empty future, every use says no_state.
TEST_F(future, without_a_state_every_use_says_so) {
  weft::run([] {
    weft::future<int> empty;
    EXPECT_FALSE(empty.valid());
    auto f = weft::async([] { return 1; });
    EXPECT_TRUE(f.valid());
    f.get();
    EXPECT_FALSE(f.valid());
    auto moved_from = weft::async([] { return 1; });
    const auto moved_to = std::move(moved_from);
    for (weft::future<int>* const x : {&empty, &f, &moved_from}) {
      EXPECT_EQ(future_error_of([&] { x->get(); }), std::future_errc::no_state);
      EXPECT_EQ(future_error_of([&] { x->wait(); }), std::future_errc::no_state);
      EXPECT_EQ(future_error_of([&] { (void)x->wait_for(1s); }), std::future_errc::no_state);
      EXPECT_EQ(future_error_of([&] { (void)x->wait_until(std::chrono::steady_clock::now()); }),
                std::future_errc::no_state);
    }
    weft::future<void> nothing;
    EXPECT_EQ(future_error_of([&] { nothing.get(); }), std::future_errc::no_state);
    weft::future<int&> reference;
    EXPECT_EQ(future_error_of([&] { reference.get(); }), std::future_errc::no_state);
  });
}

// A goroutine that ends by exit delivers nothing; its waiters must learn that.
TEST_F(future, exit_breaks_the_promise) {
  weft::run([] {
    auto value = weft::async([]() -> int { weft::this_goroutine::exit(); });
    auto nothing = weft::async([] { weft::this_goroutine::exit(); });
    auto reference = weft::async([]() -> int& { weft::this_goroutine::exit(); });
    EXPECT_EQ(future_error_of([&] { value.get(); }), std::future_errc::broken_promise);
    EXPECT_EQ(future_error_of([&] { nothing.get(); }), std::future_errc::broken_promise);
    EXPECT_EQ(future_error_of([&] { reference.get(); }), std::future_errc::broken_promise);
  });
}

// Waiting does not take the result, and may be done again and again.
TEST_F(future, wait_leaves_the_result_where_it_is) {
  weft::run([] {
    auto f = weft::async([] { return 1; });
    f.wait();
    f.wait();
    EXPECT_EQ(f.wait_for(0s), std::future_status::ready);
    EXPECT_EQ(f.wait_for(-1s), std::future_status::ready);
    EXPECT_EQ(f.wait_until(std::chrono::steady_clock::time_point::min()),
              std::future_status::ready);
    EXPECT_TRUE(f.valid());
    EXPECT_EQ(f.get(), 1);
  });
}

// A timeout is reported, not early, and leaves the future usable.
TEST_F(future, waits_with_a_limit_time_out) {
  const auto look = [] {
    weft::wait_group gate;
    gate.add(1);
    auto f = weft::async([&] {
      gate.wait();
      return 1;
    });
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(f.wait_for(3ms), std::future_status::timeout);
    EXPECT_GE(std::chrono::steady_clock::now() - start, 3ms);
    EXPECT_EQ(f.wait_for(0s), std::future_status::timeout);
    EXPECT_EQ(f.wait_for(-1h), std::future_status::timeout);
    EXPECT_EQ(f.wait_for(std::chrono::hours::min()), std::future_status::timeout);
    const auto steady = std::chrono::steady_clock::now() + 3ms;
    EXPECT_EQ(f.wait_until(steady), std::future_status::timeout);
    EXPECT_GE(std::chrono::steady_clock::now(), steady);
    const auto system = std::chrono::system_clock::now() + 3ms;
    EXPECT_EQ(f.wait_until(system), std::future_status::timeout);
    EXPECT_GE(std::chrono::system_clock::now(), system);
    EXPECT_EQ(f.wait_until(std::chrono::system_clock::time_point{}), std::future_status::timeout);
    EXPECT_TRUE(f.valid());
    gate.done();
    EXPECT_EQ(f.wait_for(std::chrono::hours::max()), std::future_status::ready);
    EXPECT_EQ(f.wait_until(std::chrono::steady_clock::time_point::max()),
              std::future_status::ready);
    EXPECT_EQ(f.get(), 1);
  };
  look();
  weft::run(look);
}

// The beginning of time is in the past: the distance from now to it does not fit into 64 bits, and
// wrapped around it would be a wait of 292 years.
TEST_F(future, wait_until_the_beginning_of_time_returns_at_once) {
  weft::run([] {
    weft::wait_group gate;
    gate.add(1);
    weft::future<void> f = weft::async([&] { gate.wait(); });
    // Opens the gate if the wait does not end by itself.
    std::atomic<bool> came_back{false};
    weft::go([&] {
      (void)eventually([&] { return came_back.load(); }, 5s);
      gate.done();
    });
    EXPECT_EQ(f.wait_until(std::chrono::steady_clock::time_point::min()),
              std::future_status::timeout);
    EXPECT_EQ(f.wait_until(std::chrono::system_clock::time_point::min()),
              std::future_status::timeout);
    came_back = true;
    f.get();
  });
}

// Unlike std::async's, the destructor does not wait: the result may be dropped.
TEST_F(future, the_destructor_does_not_wait) {
  weft::run([] {
    weft::wait_group gate;
    std::atomic<bool> ran{false};
    gate.add(1);
    {
      const auto f = weft::async([&] {
        gate.wait();
        ran = true;
      });
    }
    EXPECT_FALSE(ran);
    gate.done();
    EXPECT_TRUE(eventually([&] { return ran.load(); }));
  });
}

// The state goes with its last owner, whichever of the two that is.
TEST_F(future, dropped_results_and_exceptions_are_destroyed) {
  weft::run([] {
    auto held = std::make_shared<int>(1);
    for (int i = 0; i < 100; ++i) {
      (void)weft::async([held] { return held; });
      (void)weft::async([held]() -> int { throw held; });
      weft::async([held] { return held; }).wait();
    }
    EXPECT_TRUE(eventually([&] { return held.use_count() == 1; }));
  });
}

// What the callable holds is released before the result is there: the caller may rely on it.
TEST_F(future, the_callable_is_gone_when_the_result_is_there) {
  weft::run([] {
    const procs_scope four(4);
    for (int i = 0; i < scaled(2'000, 200); ++i) {
      const auto held = std::make_shared<int>(1);  // const: the callable can only copy it
      weft::async([held, ballast = std::array<char, 200>{}] { (void)ballast; }).wait();
      ASSERT_EQ(held.use_count(), 1);
    }
  });
}

// Moving and swapping keep each result with its future.
TEST_F(future, moves_and_swaps) {
  weft::run([] {
    auto a = weft::async([] { return 1; });
    auto b = weft::async([] { return 2; });
    a.swap(b);
    weft::future<int> c = std::move(a);
    EXPECT_FALSE(a.valid());
    b = std::move(c);  // drops the 1
    EXPECT_EQ(b.get(), 2);
    weft::future<int> self = weft::async([] { return 3; });
    weft::future<int>& alias = self;
    self = std::move(alias);
    ASSERT_TRUE(self.valid());
    EXPECT_EQ(self.get(), 3);
  });
}

// Several may wait for one result by const wait; all must go on.
TEST_F(future, many_wait_for_one) {
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group gate;
    weft::wait_group all;
    gate.add(1);
    const auto f = weft::async([&] {
      gate.wait();
      return 1;
    });
    constexpr std::size_t n = 50;
    for (std::size_t i = 0; i < n; ++i) all.go([&] { f.wait(); });
    EXPECT_TRUE(weft::test::until_waiting(n, weft::detail::wait_reason::future));
    gate.done();
    all.wait();
  });
}

// The wait ends at its limit or with the result, whichever comes first; a race between the two must
// neither lose the goroutine nor wake it twice.
TEST_F(future, limits_that_race_with_the_result_lose_nobody) {
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group all;
    std::atomic<int> ready{0};
    constexpr int n = scaled(5'000, 300);
    for (int i = 0; i < n; ++i) {
      all.go([&, i] {
        const auto d = std::chrono::microseconds(i % 300);
        auto f = weft::async([=] {
          weft::this_goroutine::sleep_for(d);
          return i;
        });
        while (f.wait_for(d) != std::future_status::ready) {
        }
        if (f.get() == i) ++ready;
      });
    }
    all.wait();
    EXPECT_EQ(ready, n);
  });
}

// A chain of futures, each waiting for the next, is resolved from the end.
TEST_F(future, a_chain_is_resolved) {
  struct link {
    static int sum(int depth) {
      if (depth == 0) return 0;
      return weft::async(&link::sum, depth - 1).get() + 1;
    }
  };
  weft::run([] { EXPECT_EQ(link::sum(scaled(2'000, 500)), scaled(2'000, 500)); });
}

// The starter may be gone before the result is: the state belongs to both.
TEST_F(future, outlives_the_thread_that_started_it) {
  weft::future<std::string> f;
  std::thread([&] { f = weft::async([] { return std::string(100, 'x'); }); }).join();
  EXPECT_EQ(f.get(), std::string(100, 'x'));
}

}  // namespace
