// latch and barrier: counting down, phases, which goroutine runs the completion, and when they may
// be destroyed.
#include "runtime_fixture.hpp"

#include <weft/sync.hpp>
#include <weft/test.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using weft::test::bubble;
using weft::test::explore;
using weft::test::procs_scope;
using weft::test::runs;
using weft::test::runtime_test;
using weft::test::scaled;

class latch : public runtime_test {};
class barrier : public runtime_test {};

static_assert(!std::is_copy_constructible_v<weft::latch>);
static_assert(!std::is_copy_constructible_v<weft::barrier<>>);
static_assert(std::is_move_constructible_v<weft::barrier<>::arrival_token>);
static_assert(weft::latch::max() >= 1'000'000 && weft::barrier<>::max() >= 1'000'000);

TEST_F(latch, opens_when_it_is_counted_down) {
  weft::latch l(3);
  EXPECT_FALSE(l.try_wait());
  l.count_down();
  l.count_down(2);
  EXPECT_TRUE(l.try_wait());
  l.wait();
  l.count_down(0);
  weft::latch open(0);
  open.wait();
}

TEST_F(latch, what_precedes_count_down_is_visible_after_wait) {
  explore({.runs = runs(1'500)}, [] {
    std::array<weft::test::var<int>, 3> plain;
    weft::latch l(3);
    weft::wait_group all;
    for (auto& v : plain) {
      all.go([&] {
        v = 1;
        l.count_down();
      });
    }
    all.go([&] {
      l.wait();
      EXPECT_EQ(plain[0] + plain[1] + plain[2], 3);
    });
    l.wait();
    EXPECT_TRUE(l.try_wait());
    all.wait();
  });
}

TEST_F(latch, arrive_and_wait_lets_all_go_on_together) {
  for (const int procs : {1, 2, 8}) {
    const procs_scope p(procs);
    for (int round = 0; round < scaled(100, 10); ++round) {
      weft::latch l(6);
      std::atomic<int> arrived{0};
      const auto come = [&] {
        ++arrived;
        l.arrive_and_wait();
        EXPECT_EQ(arrived, 6);
      };
      std::thread t(come);
      weft::run([&] {
        weft::wait_group all;
        for (int i = 0; i < 5; ++i) all.go(come);
        all.wait();
      });
      t.join();
    }
  }
}

TEST_F(latch, may_be_destroyed_when_wait_has_returned) {
  const procs_scope four(4);
  weft::run([] {
    for (int round = 0; round < scaled(3'000, 300); ++round) {
      auto l = std::make_unique<weft::latch>(2);
      for (int i = 0; i < 2; ++i) weft::go([p = l.get()] { p->count_down(); });
      l->wait();
    }
  });
}

// No goroutine goes on before all have arrived, phase after phase; what came before is visible.
TEST_F(barrier, separates_phases_in_every_order) {
  explore({.runs = runs(1'500)}, [] {
    constexpr int n = 3;
    std::array<weft::test::var<int>, n> mine;
    weft::test::var<int> completed{0};
    auto complete = [&]() noexcept { ++completed; };
    weft::barrier<decltype(complete)> b(n, complete);
    weft::wait_group all;
    for (std::size_t i = 0; i < n; ++i) {
      all.go([&, i] {
        for (int phase = 1; phase <= 3; ++phase) {
          mine[i] = phase;
          b.arrive_and_wait();
          EXPECT_EQ(completed, 2 * phase - 1);
          for (const auto& other : mine) EXPECT_EQ(other, phase);
          b.arrive_and_wait();  // all have read
        }
      });
    }
    all.wait();
  });
}

TEST_F(barrier, tokens_wait_for_their_own_phase) {
  bubble([] {
    weft::barrier<> b(2);
    auto first = b.arrive();
    auto second = b.arrive();
    b.wait(std::move(first));
    auto third = b.arrive();
    b.wait(std::move(second));  // long over
    weft::wait_group all;
    std::atomic<bool> through{false};
    all.go([&] {
      b.wait(std::move(third));
      through = true;
    });
    weft::test::wait();
    EXPECT_FALSE(through);
    (void)b.arrive();
    all.wait();
    auto both = b.arrive(2);
    b.wait(std::move(both));
  });
}

TEST_F(barrier, who_drops_is_not_expected_again) {
  explore({.runs = runs(1'000)}, [] {
    int phases = 0;
    auto complete = [&]() noexcept { ++phases; };
    weft::barrier<decltype(complete)> b(3, complete);
    weft::wait_group all;
    all.go([&] { b.arrive_and_drop(); });
    all.go([&] {
      b.arrive_and_wait();
      b.arrive_and_drop();
    });
    for (int i = 0; i < 3; ++i) b.arrive_and_wait();
    all.wait();
    EXPECT_EQ(phases, 3);
  });
}

// The completion function is user code: it may wait.
TEST_F(barrier, the_completion_may_wait) {
  bubble([] {
    weft::mutex m;
    auto complete = [&]() noexcept {
      weft::this_goroutine::sleep_for(std::chrono::seconds(1));
      const std::lock_guard lock(m);
    };
    weft::barrier<decltype(complete)> b(2, complete);
    weft::wait_group all;
    all.go([&] { b.arrive_and_wait(); });
    const auto begin = weft::detail::clock_now_ns();
    b.arrive_and_wait();
    EXPECT_EQ(weft::detail::clock_now_ns() - begin, 1'000'000'000);
    all.wait();
  });
}

TEST_F(barrier, goroutines_and_threads_meet_on_real_processors) {
  for (const int procs : {1, 2, 8}) {
    const procs_scope p(procs);
    constexpr int n = 6;
    const int phases = scaled(300, 50);
    int completed = 0;  // only the completion writes it
    auto complete = [&]() noexcept { ++completed; };
    weft::barrier<decltype(complete)> b(n, complete);
    const auto count = [&] {
      for (int i = 1; i <= phases; ++i) {
        b.arrive_and_wait();
        EXPECT_EQ(completed, 2 * i - 1);
        b.arrive_and_wait();  // all have read
      }
    };
    std::thread t(count);
    weft::run([&] {
      weft::wait_group all;
      for (int i = 0; i < n - 1; ++i) all.go(count);
      all.wait();
    });
    t.join();
    EXPECT_EQ(completed, 2 * phases);
  }
}

}  // namespace
