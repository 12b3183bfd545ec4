// The mutex: exclusion, order, time, its two modes, and the moment from which it may go; in every
// order that explorations come up with and on real processors.
#include "runtime_fixture.hpp"

#include <weft/sync.hpp>
#include <weft/test.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
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
using weft::test::until_waiting;

class mutex : public runtime_test {};

static_assert(!std::is_copy_constructible_v<weft::mutex>);
static_assert(!std::is_copy_assignable_v<weft::mutex>);
static_assert(std::is_nothrow_default_constructible_v<weft::mutex>);

constinit weft::mutex made_at_compile_time;

TEST_F(mutex, try_lock_fails_exactly_while_it_is_locked) {
  weft::mutex m;
  EXPECT_TRUE(m.try_lock());
  EXPECT_FALSE(m.try_lock());
  m.unlock();
  m.lock();
  EXPECT_FALSE(m.try_lock());
  m.unlock();
  EXPECT_TRUE(m.try_lock());
  m.unlock();
  const std::lock_guard held(made_at_compile_time);
  EXPECT_FALSE(made_at_compile_time.try_lock());
}

TEST_F(mutex, works_with_the_standard_locks) {
  weft::mutex a;
  weft::mutex b;
  {
    const std::lock_guard g(a);
    EXPECT_FALSE(a.try_lock());
  }
  {
    const std::scoped_lock both(a, b);
    EXPECT_FALSE(a.try_lock());
    EXPECT_FALSE(b.try_lock());
  }
  std::unique_lock u(a, std::defer_lock);
  EXPECT_TRUE(u.try_lock());
  u.unlock();
  EXPECT_TRUE(u.try_lock_for(1ms));
  u.unlock();
  EXPECT_TRUE(u.try_lock_until(std::chrono::steady_clock::now() + 1ms));
  u.unlock();
  EXPECT_TRUE(u.try_lock_until(std::chrono::system_clock::now() - 1h));
  weft::mutex& same = *u.release();
  same.unlock();
}

// At most one holder at a time, and each sees what the holder before did; a var detects races.
TEST_F(mutex, excludes_in_every_order) {
  explore({.runs = runs(3'000)}, [] {
    weft::mutex m;
    weft::test::var<int> count{0};
    weft::wait_group all;
    for (int i = 0; i < 4; ++i) {
      all.go([&] {
        for (int k = 0; k < 3; ++k) {
          const std::lock_guard held(m);
          ++count;
        }
      });
    }
    all.wait();
    EXPECT_EQ(count, 12);
  });
}

TEST_F(mutex, excludes_in_all_orders_of_three) {
  const auto r = weft::test::try_explore(
      {.how = weft::test::strategy::exhaustive, .runs = weft::test::slow_build ? 500u : 100'000u},
      [] {
        weft::mutex m;
        weft::test::var<int> count{0};
        weft::wait_group all;
        for (int i = 0; i < 3; ++i) {
          all.go([&, i] {
            if (i == 2 && !m.try_lock()) return;
            if (i != 2) m.lock();
            ++count;
            m.unlock();
          });
        }
        all.wait();
        EXPECT_GE(count.get(), 2);
      });
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted || weft::test::slow_build);
}

// A mutex has no owner.
TEST_F(mutex, may_be_unlocked_by_another) {
  explore({.runs = 200}, [] {
    weft::mutex m;
    weft::test::var<int> stage{0};
    m.lock();
    weft::wait_group all;
    all.go([&] {
      stage = 1;
      m.unlock();
    });
    m.lock();
    EXPECT_EQ(stage, 1);
    m.unlock();
    all.wait();
  });
}

TEST_F(mutex, gives_up_when_its_time_is_over) {
  bubble([] {
    weft::mutex m;
    m.lock();
    weft::wait_group all;
    const auto begin = weft::detail::clock_now_ns();
    all.go([&] {
      EXPECT_FALSE(m.try_lock_for(10ms));
      EXPECT_EQ(weft::detail::clock_now_ns() - begin, 10'000'000);
      EXPECT_FALSE(m.try_lock_for(0s));
      EXPECT_FALSE(m.try_lock_for(-1h));
      EXPECT_TRUE(m.try_lock_for(1h));
      EXPECT_EQ(weft::detail::clock_now_ns() - begin, 20'000'000);
      m.unlock();
    });
    weft::this_goroutine::sleep_for(20ms);
    m.unlock();
    all.wait();
    EXPECT_TRUE(m.try_lock());
    m.unlock();
  });
}

// A wake-up for a waiter that has just timed out must reach another waiter.
TEST_F(mutex, a_timeout_loses_no_wake_up) {
  explore({.runs = runs(4'000)}, [] {
    weft::mutex m;
    weft::test::var<int> count{0};
    weft::wait_group all;
    m.lock();
    for (int i = 0; i < 4; ++i) {
      all.go([&, i] {
        if (i % 2 == 0) {
          if (!m.try_lock_for(std::chrono::milliseconds(i + 1))) return;
        } else {
          m.lock();
        }
        ++count;
        m.unlock();
      });
    }
    weft::this_goroutine::sleep_for(2ms);
    m.unlock();
    all.wait();
    m.lock();
    EXPECT_GE(count.get(), 2);
    m.unlock();
  });
}

// Normal mode: a running goroutine gets the lock. Starvation mode, after a millisecond: the waiter
// does.
TEST_F(mutex, a_waiter_gets_it_after_a_millisecond_against_one_that_never_pauses) {
  bubble([] {
    weft::mutex m;
    std::atomic<bool> got{false};
    weft::wait_group all;
    m.lock();
    all.go([&] {
      m.lock();
      got = true;
      m.unlock();
    });
    int turns = 0;
    for (; !got && turns < 100; ++turns) {
      weft::this_goroutine::sleep_for(400us);  // the lock is held almost always
      m.unlock();
      m.lock();
    }
    m.unlock();
    all.wait();
    EXPECT_GE(turns, 2) << "barging";
    EXPECT_LE(turns, 6) << "starvation mode";
  });
}

// In starvation mode the queue is served in order, and no running goroutine gets in between.
TEST_F(mutex, starvation_mode_is_first_come_first_served) {
  bubble([] {
    weft::mutex m;
    std::vector<int> order;
    weft::wait_group all;
    m.lock();
    for (int i = 0; i < 5; ++i) {
      all.go([&, i] {
        m.lock();
        order.push_back(i);
        weft::this_goroutine::sleep_for(100us);
        m.unlock();
      });
      weft::test::wait();
    }
    weft::this_goroutine::sleep_for(2ms);
    m.unlock();  // the first waiter is woken, and
    m.lock();    // beaten to it
    weft::test::wait();
    m.unlock();  // handed over
    EXPECT_FALSE(m.try_lock());
    m.lock();
    order.push_back(99);
    m.unlock();
    all.wait();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 99}));
  });
}

// Go's MutexFairness: one that sleeps between attempts against one that holds it almost always.
TEST_F(mutex, is_fair_to_one_that_asks_seldom) {
  weft::run([] {
    const procs_scope two(2);
    weft::mutex m;
    std::atomic<bool> stop{false};
    weft::wait_group all;
    all.go([&] {
      while (!stop) {
        m.lock();
        weft::this_goroutine::sleep_for(100us);
        m.unlock();
      }
    });
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) {
      weft::this_goroutine::sleep_for(100us);
      m.lock();
      m.unlock();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
    stop = true;
    all.wait();
  });
}

TEST_F(mutex, excludes_goroutines_and_threads_on_real_processors) {
  for (const int procs : {1, 2, 8}) {
    const procs_scope p(procs);
    constexpr int goroutines = 10;
    const int turns = scaled(3'000, 200);
    weft::mutex m;
    long count = 0;
    std::atomic<long> expected{0};
    const auto hammer = [&](int seed) {
      long mine = 0;
      for (int i = 0; i < turns; ++i) {
        if ((i + seed) % 3 == 0) {
          if (!m.try_lock()) continue;
        } else if ((i + seed) % 17 == 0) {
          if (!m.try_lock_for(50us)) continue;
        } else {
          m.lock();
        }
        ++count;
        ++mine;
        if (i % 64 == 0) weft::this_goroutine::yield();  // holding it
        m.unlock();
      }
      expected += mine;
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back(hammer, i);
    weft::run([&] {
      weft::wait_group all;
      for (int i = 0; i < goroutines; ++i) all.go([&, i] { hammer(i); });
      all.wait();
    });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(count, expected);
    EXPECT_TRUE(m.try_lock());
    m.unlock();
  }
}

// The last to unlock may destroy the mutex, while the unlock before is still on its way out.
TEST_F(mutex, may_be_destroyed_by_the_goroutine_that_unlocked_it_last) {
  const procs_scope four(4);
  for (int round = 0; round < scaled(3'000, 300); ++round) {
    struct shared {
      weft::mutex m;
      int left = 3;
    };
    auto* const s = new shared;
    const auto use = [s] {
      s->m.lock();
      const bool last = --s->left == 0;
      s->m.unlock();
      if (last) delete s;
    };
    weft::run([&] {
      weft::wait_group all;
      for (int i = 0; i < 3; ++i) all.go(use);
      all.wait();
    });
  }
}

TEST_F(mutex, shows_what_a_goroutine_waits_for) {
  weft::run([] {
    weft::mutex m;
    m.lock();
    weft::wait_group all;
    all.go([&] { const std::lock_guard held(m); });
    EXPECT_TRUE(until_waiting(1, weft::detail::wait_reason::mutex));
    m.unlock();
    all.wait();
  });
}

}  // namespace
