// foreign_thread_test.cpp: plain threads that use weft beside the goroutines.
#include "runtime_fixture.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::eventually;
using weft::test::procs_scope;
using weft::test::runtime_test;
using weft::test::scaled;

class foreign_thread : public runtime_test {};

template <class F>
void on_threads(int n, F f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back(f, i);
  for (std::thread& t : threads) t.join();
}

// A thread pool of some other library starts goroutines: each must run, once.
TEST_F(foreign_thread, eight_threads_start_goroutines_at_once) {
  const procs_scope four(4);
  constexpr int each = scaled(10'000, 500);
  std::atomic<int> ran{0};
  on_threads(8, [&](int) {
    for (int i = 0; i < each; ++i) weft::go([&] { ++ran; });
  });
  EXPECT_TRUE(eventually([&] { return ran == 8 * each; }));
}

// Threads wait for goroutines in every way there is, all at the same time.
TEST_F(foreign_thread, eight_threads_wait_for_groups_and_futures) {
  const procs_scope four(4);
  std::atomic<int> good{0};
  constexpr int rounds = scaled(500, 40);
  on_threads(8, [&](int me) {
    for (int i = 0; i < rounds; ++i) {
      weft::wait_group g;
      int plain[4] = {};
      for (int k = 0; k < 4; ++k) {
        g.go([&plain, k] {
          if (k % 2 == 0) weft::this_goroutine::yield();
          plain[k] = k;
        });
      }
      auto f = weft::async([=] { return me * 1000 + i; });
      g.wait();
      if (plain[0] + plain[1] + plain[2] + plain[3] == 6 && f.get() == me * 1000 + i) ++good;
    }
  });
  EXPECT_EQ(good, 8 * rounds);
}

// Goroutines wait for threads just as well.
TEST_F(foreign_thread, threads_wake_goroutines) {
  const procs_scope four(4);
  constexpr int rounds = scaled(2'000, 200);
  weft::run([] {
    for (int i = 0; i < rounds / 100; ++i) {
      weft::wait_group gates[100];
      for (weft::wait_group& g : gates) g.add(1);
      std::thread waker([&] {
        for (weft::wait_group& g : gates) g.done();
      });
      for (weft::wait_group& g : gates) g.wait();
      waker.join();  // it has nothing left to do
    }
  });
}

// A thread and a goroutine wake each other in turn: each end of it may be asleep in the kernel.
TEST_F(foreign_thread, ping_pong_between_a_thread_and_a_goroutine) {
  struct ball {
    weft::wait_group to_goroutine;
    weft::wait_group to_thread;
  };
  constexpr int rounds = scaled(2'000, 200);
  std::vector<std::unique_ptr<ball>> balls;
  for (int i = 0; i < rounds; ++i) {
    balls.push_back(std::make_unique<ball>());
    balls.back()->to_goroutine.add(1);
    balls.back()->to_thread.add(1);
  }
  int plain = 0;  // handed to and fro with the ball
  std::thread thread([&] {
    for (auto& b : balls) {
      ++plain;
      b->to_goroutine.done();
      b->to_thread.wait();
    }
  });
  weft::run([&] {
    for (auto& b : balls) {
      b->to_goroutine.wait();
      ++plain;
      b->to_thread.done();
    }
  });
  thread.join();
  EXPECT_EQ(plain, 2 * rounds);
}

// A thread that waits with a limit and one that is woken at that very time.
TEST_F(foreign_thread, limits_race_with_results) {
  const procs_scope four(4);
  std::atomic<int> good{0};
  constexpr int rounds = scaled(1'000, 100);
  on_threads(4, [&](int me) {
    for (int i = 0; i < rounds; ++i) {
      const auto d = std::chrono::microseconds((i + me) % 100);
      auto f = weft::async([=] {
        weft::this_goroutine::sleep_for(d);
        return i;
      });
      while (f.wait_for(d) != std::future_status::ready) {
      }
      if (f.get() == i) ++good;
    }
  });
  EXPECT_EQ(good, 4 * rounds);
}

// Threads come and go: what represented one must not be confused with the next at its address.
TEST_F(foreign_thread, short_lived_threads_wait_and_end) {
  for (int i = 0; i < scaled(300, 50); ++i) {
    weft::wait_group g;
    std::atomic<int> through{0};
    g.add(1);
    weft::go([&] { g.done(); });
    on_threads(3, [&](int) {
      g.wait();
      ++through;
    });
    ASSERT_EQ(through, 3);
  }
}

// The first use of weft may come from several threads at once; the runtime starts once.
TEST_F(foreign_thread, several_runs_at_once) {
  std::atomic<int> sum{0};
  on_threads(8, [&](int me) {
    for (int i = 0; i < scaled(200, 20); ++i) {
      sum += weft::run([=] {
        weft::wait_group g;
        for (int k = 0; k < 5; ++k) g.go([] { weft::this_goroutine::yield(); });
        g.wait();
        return me;
      });
    }
  });
  EXPECT_EQ(sum, scaled(200, 20) * 28);
}

// All of it together, with processors coming and going.
TEST_F(foreign_thread, everything_at_once) {
  const procs_scope scope(4);
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    for (int i = 0; !stop; ++i) {
      weft::max_procs(1 + i % 5);
      weft::this_goroutine::sleep_for(200us);
    }
  });
  std::atomic<int> good{0};
  constexpr int rounds = scaled(200, 20);
  on_threads(7, [&](int me) {
    for (int i = 0; i < rounds; ++i) {
      weft::wait_group g;
      g.go([] { weft::this_goroutine::sleep_for(10us); });
      g.go([&g] { g.go([] {}); });
      auto f = weft::async([=] { return weft::async([=] { return me; }).get(); });
      g.wait();
      if (f.get() == me) ++good;
    }
  });
  stop = true;
  changer.join();
  EXPECT_EQ(good, 7 * rounds);
}

}  // namespace
