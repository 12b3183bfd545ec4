// Semaphores: permits, order, time, and the moment from which one may go.
#include "runtime_fixture.hpp"

#include <weft/sync.hpp>
#include <weft/test.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::bubble;
using weft::test::explore;
using weft::test::procs_scope;
using weft::test::runs;
using weft::test::runtime_test;
using weft::test::scaled;

class semaphore : public runtime_test {};

static_assert(!std::is_copy_constructible_v<weft::binary_semaphore>);
static_assert(weft::binary_semaphore::max() >= 1);
static_assert(weft::counting_semaphore<>::max() > 1'000'000'000);
static_assert(weft::counting_semaphore<12>::max() >= 12);

constinit weft::counting_semaphore<> made_at_compile_time{2};

TEST_F(semaphore, has_as_many_permits_as_were_put_in) {
  weft::counting_semaphore<10> s(2);
  EXPECT_TRUE(s.try_acquire());
  s.acquire();
  EXPECT_FALSE(s.try_acquire());
  s.release(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(s.try_acquire());
  EXPECT_FALSE(s.try_acquire());
  s.release(0);
  EXPECT_FALSE(s.try_acquire());
  EXPECT_FALSE(s.try_acquire_for(0s));
  EXPECT_FALSE(s.try_acquire_until(std::chrono::system_clock::now() - 1h));
  s.release();
  EXPECT_TRUE(s.try_acquire_until(std::chrono::steady_clock::now() - 1h));
  EXPECT_TRUE(made_at_compile_time.try_acquire());
  made_at_compile_time.release();
}

// No more than there are permits at a time, none lost, and what came before release is visible.
TEST_F(semaphore, admits_as_many_as_it_has_permits_in_every_order) {
  for (const int permits : {1, 2}) {
    explore({.runs = runs(2'000)}, [permits] {
      weft::counting_semaphore<> s(permits);
      weft::test::atomic<int> within{0};
      weft::test::var<int> guarded{0};
      weft::wait_group all;
      for (int i = 0; i < 4; ++i) {
        all.go([&] {
          for (int k = 0; k < 2; ++k) {
            s.acquire();
            EXPECT_LE(++within, permits);
            if (permits == 1) ++guarded;
            --within;
            s.release();
          }
        });
      }
      all.wait();
      for (int i = 0; i < permits; ++i) EXPECT_TRUE(s.try_acquire());
      EXPECT_FALSE(s.try_acquire());
      EXPECT_EQ(guarded, permits == 1 ? 8 : 0);
    });
  }
}

// First come, first served; a later caller does not overtake.
TEST_F(semaphore, serves_in_the_order_of_arrival) {
  bubble([] {
    weft::counting_semaphore<> s(0);
    std::vector<int> order;
    weft::wait_group all;
    for (int i = 0; i < 6; ++i) {
      all.go([&, i] {
        s.acquire();
        order.push_back(i);
      });
      weft::test::wait();
    }
    s.release();
    EXPECT_FALSE(s.try_acquire()) << "the permit belongs to the first in the queue";
    weft::test::wait();
    s.release();
    weft::test::wait();
    EXPECT_EQ(order, (std::vector<int>{0, 1}));
    s.release(3);
    weft::test::wait();
    std::sort(order.begin(), order.end());  // three run at the same time
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
    s.release(2);
    all.wait();
    EXPECT_EQ(order.back(), 5);
    EXPECT_TRUE(s.try_acquire()) << "the rest of the last release";
    EXPECT_FALSE(s.try_acquire());
  });
}

TEST_F(semaphore, gives_up_when_its_time_is_over) {
  bubble([] {
    weft::binary_semaphore s(0);
    const auto begin = weft::detail::clock_now_ns();
    EXPECT_FALSE(s.try_acquire_for(10ms));
    EXPECT_EQ(weft::detail::clock_now_ns() - begin, 10'000'000);
    weft::wait_group all;
    all.go([&] { EXPECT_TRUE(s.try_acquire_for(1h)); });
    weft::this_goroutine::sleep_for(59min);
    s.release();
    all.wait();
    EXPECT_FALSE(s.try_acquire());
  });
}

// A permit goes to exactly one waiter: neither to one that has timed out, nor to none.
TEST_F(semaphore, a_timeout_loses_no_permit_and_keeps_none) {
  explore({.runs = runs(4'000)}, [] {
    weft::counting_semaphore<> s(0);
    weft::test::atomic<int> got{0};
    weft::wait_group all;
    for (int i = 0; i < 3; ++i) {
      all.go([&, i] {
        if (s.try_acquire_for(std::chrono::milliseconds(i + 1))) ++got;
      });
    }
    all.go([&] {
      weft::this_goroutine::sleep_for(2ms);
      s.release();
      s.release();
    });
    all.wait();
    int left = 0;
    while (s.try_acquire()) ++left;
    EXPECT_EQ(got + left, 2);
  });
}

TEST_F(semaphore, goroutines_and_threads_share_permits_on_real_processors) {
  for (const int procs : {1, 2, 8}) {
    const procs_scope p(procs);
    weft::counting_semaphore<> s(3);
    std::atomic<int> within{0};
    std::atomic<int> most{0};
    const auto use = [&](int seed) {
      for (int i = 0; i < scaled(2'000, 200); ++i) {
        if ((i + seed) % 5 == 0) {
          if (!s.try_acquire_for(20us)) continue;
        } else {
          s.acquire();
        }
        const int now = ++within;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        if (i % 32 == 0) weft::this_goroutine::yield();
        --within;
        s.release();
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back(use, i);
    weft::run([&] {
      weft::wait_group all;
      for (int i = 0; i < 8; ++i) all.go([&, i] { use(i); });
      all.wait();
    });
    for (std::thread& t : threads) t.join();
    EXPECT_LE(most, 3);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(s.try_acquire());
    EXPECT_FALSE(s.try_acquire());
  }
}

// The last to acquire destroys the semaphore while the release that let it through is on its way
// out.
TEST_F(semaphore, may_be_destroyed_once_the_last_acquire_has_returned) {
  const procs_scope four(4);
  weft::run([] {
    for (int round = 0; round < scaled(5'000, 300); ++round) {
      auto s = std::make_unique<weft::binary_semaphore>(0);
      weft::go([p = s.get()] { p->release(); });
      if (round % 2 == 0) weft::this_goroutine::yield();
      s->acquire();
      s.reset();
    }
  });
  for (int round = 0; round < scaled(500, 50); ++round) {
    auto s = std::make_unique<weft::binary_semaphore>(0);
    weft::wait_group ended;
    ended.go([p = s.get()] { p->release(); });
    s->acquire();
    s.reset();
    ended.wait();
  }
}

}  // namespace
