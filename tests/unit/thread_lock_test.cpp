// thread_lock_test.cpp: lock_thread and unlock_thread: a goroutine that keeps its OS thread.
#include "runtime_fixture.hpp"
#include "thread_hop.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::eventually;
using weft::test::procs_scope;
using weft::test::runtime_test;
using weft::test::scaled;
using weft::test::thread_id;

class thread_lock : public runtime_test {};

// Some goroutines that yield all the time, so that there is always another one to run.
class crowd {
 public:
  explicit crowd(int n) {
    for (int i = 0; i < n; ++i) {
      all_.go([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
          {
            const std::lock_guard hold(mutex_);
            seen_on_.insert(thread_id());
          }
          weft::this_goroutine::yield();
        }
      });
    }
  }
  crowd(const crowd&) = delete;
  crowd& operator=(const crowd&) = delete;
  ~crowd() { leave(); }
  void leave() {
    stop_ = true;
    all_.wait();
  }

  void forget() {
    const std::lock_guard hold(mutex_);
    seen_on_.clear();
  }
  bool was_on(pid_t thread) {
    const std::lock_guard hold(mutex_);
    return seen_on_.contains(thread);
  }
  bool was_anywhere() {
    const std::lock_guard hold(mutex_);
    return !seen_on_.empty();
  }

 private:
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::set<pid_t> seen_on_;
  weft::wait_group all_;
};

// OpenGL contexts, per-thread credentials and the like live on one thread. Whatever a locked
// goroutine waits for, it comes back there.
TEST_F(thread_lock, a_locked_goroutine_keeps_its_thread) {
  for (const int procs : {1, 2, 4}) {
    const procs_scope scope(procs);
    weft::run([] {
      crowd others(8);
      weft::this_goroutine::lock_thread();
      const pid_t mine = thread_id();
      for (int i = 0; i < scaled(300, 50); ++i) {
        weft::this_goroutine::yield();
        ASSERT_EQ(thread_id(), mine);
        weft::wait_group g;
        g.go([] {});
        g.wait();
        ASSERT_EQ(thread_id(), mine);
        ASSERT_EQ(weft::async([] { return 1; }).get(), 1);
        ASSERT_EQ(thread_id(), mine);
        if (i % 10 == 0) weft::this_goroutine::sleep_for(100us);
        ASSERT_EQ(thread_id(), mine);
      }
      weft::this_goroutine::unlock_thread();
    });
  }
}

// While a goroutine is locked, no other runs on its thread, whether it runs or waits.
TEST_F(thread_lock, nobody_else_runs_on_a_locked_thread) {
  for (const int procs : {1, 3}) {
    const procs_scope scope(procs);
    weft::run([] {
      crowd others(6);
      weft::this_goroutine::lock_thread();
      const pid_t mine = thread_id();
      others.forget();
      for (int i = 0; i < scaled(200, 30); ++i) {
        weft::this_goroutine::yield();
        if (i % 20 == 0) weft::this_goroutine::sleep_for(200us);
        ASSERT_FALSE(others.was_on(mine));
      }
      EXPECT_TRUE(eventually([&] { return others.was_anywhere(); }));
      EXPECT_FALSE(others.was_on(mine));
      weft::this_goroutine::unlock_thread();
    });
  }
}

// Locks nest: a library that locks and unlocks must not unlock its caller.
TEST_F(thread_lock, nests) {
  const procs_scope scope(2);
  weft::run([] {
    crowd others(4);
    constexpr int depth = 200;
    for (int i = 0; i < depth; ++i) weft::this_goroutine::lock_thread();
    const pid_t mine = thread_id();
    for (int i = 0; i < depth - 1; ++i) {
      weft::this_goroutine::unlock_thread();
      weft::this_goroutine::yield();
      ASSERT_EQ(thread_id(), mine);
    }
    others.forget();
    weft::this_goroutine::unlock_thread();
    // Free again: others come to run here in time, as long as we stay away.
    EXPECT_TRUE(eventually([&] { return others.was_on(mine) || thread_id() != mine; }));
  });
}

// Go counts to four thousand million. A thousand is what a recursive callback can reach.
TEST_F(thread_lock, nests_a_thousand_deep) {
  weft::run([] {
    for (int i = 0; i < 1000; ++i) weft::this_goroutine::lock_thread();
    const pid_t mine = thread_id();
    for (int i = 0; i < 999; ++i) weft::this_goroutine::unlock_thread();
    for (int i = 0; i < 10; ++i) weft::this_goroutine::yield();
    EXPECT_EQ(thread_id(), mine);
    weft::this_goroutine::unlock_thread();
  });
}

// As in Go, an unlock without a lock does nothing; it must not count below zero either.
TEST_F(thread_lock, an_unlock_without_a_lock_does_nothing) {
  weft::this_goroutine::lock_thread();  // on a plain thread neither does anything
  weft::this_goroutine::unlock_thread();
  weft::run([] {
    for (int i = 0; i < 300; ++i) weft::this_goroutine::unlock_thread();
    crowd others(4);
    weft::this_goroutine::lock_thread();
    const pid_t mine = thread_id();
    for (int i = 0; i < 100; ++i) {
      weft::this_goroutine::yield();
      ASSERT_EQ(thread_id(), mine);
    }
    weft::this_goroutine::unlock_thread();
  });
}

// A goroutine that changed its thread for good (namespaces, credentials) ends locked: the thread
// goes with it and nobody inherits it.
TEST_F(thread_lock, a_goroutine_that_ends_locked_takes_its_thread_with_it) {
  for (const int procs : {1, 2, 4}) {
    const procs_scope scope(procs);
    weft::run([] {
      crowd others(6);
      std::set<pid_t> tainted;
      for (int i = 0; i < scaled(50, 10); ++i) {
        weft::wait_group g;
        pid_t thread = 0;
        g.go([&] {
          weft::this_goroutine::lock_thread();
          thread = thread_id();
          if (i % 2 == 0) weft::this_goroutine::yield();
          if (i % 3 == 0) weft::this_goroutine::exit();
        });
        g.wait();
        ASSERT_FALSE(tainted.contains(thread)) << "a locked thread was used again";
        tainted.insert(thread);
      }
      others.forget();
      weft::this_goroutine::sleep_for(2ms);
      for (const pid_t thread : tainted) EXPECT_FALSE(others.was_on(thread));
    });
  }
}

// With one processor the locked goroutine and the one it waits for are on different threads.
TEST_F(thread_lock, two_locked_goroutines_take_turns_on_one_processor) {
  for (const int procs : {1, 2}) {
    const procs_scope scope(procs);
    weft::run([] {
      weft::wait_group all;
      std::atomic<int> turn{0};
      constexpr int turns = scaled(1'000, 100);
      for (int me = 0; me < 2; ++me) {
        all.go([&, me] {
          weft::this_goroutine::lock_thread();
          const pid_t mine = thread_id();
          for (int i = 0; i < turns; ++i) {
            while (turn % 2 != me) weft::this_goroutine::yield();
            ASSERT_EQ(thread_id(), mine);
            ++turn;
          }
          weft::this_goroutine::unlock_thread();
        });
      }
      all.wait();
      EXPECT_EQ(turn, 2 * turns);
    });
  }
}

// A locked goroutine may be readied before its thread has gone to sleep; the processor that then
// comes for it must not meet the one it is about to give up.
TEST_F(thread_lock, wake_ups_that_come_at_once_are_not_lost) {
  for (const int procs : {2, 4, 8}) {
    const procs_scope scope(procs);
    weft::run([] {
      weft::wait_group all;
      for (int worker = 0; worker < 6; ++worker) {
        all.go([] {
          weft::this_goroutine::lock_thread();
          const pid_t mine = thread_id();
          for (int i = 0; i < scaled(2'000, 200); ++i) {
            weft::wait_group g;
            g.add(1);
            weft::go([&] { g.done(); });
            g.wait();
            ASSERT_EQ(thread_id(), mine);
          }
          weft::this_goroutine::unlock_thread();
        });
      }
      all.wait();
    });
  }
}

// As above, with plain threads as wakers: they come from outside, at any time.
TEST_F(thread_lock, wake_ups_from_threads_are_not_lost) {
  const procs_scope scope(3);
  constexpr int rounds = scaled(3'000, 200);
  constexpr int pairs = 3;
  struct pair {
    std::atomic<weft::wait_group*> gate{nullptr};
  };
  pair mailboxes[pairs];
  std::vector<std::thread> wakers;
  for (pair& p : mailboxes) {
    wakers.emplace_back([&p] {
      for (int i = 0; i < rounds; ++i) {
        weft::wait_group* g = nullptr;
        while ((g = p.gate.exchange(nullptr)) == nullptr) std::this_thread::yield();
        g->done();
      }
    });
  }
  weft::run([&] {
    weft::wait_group all;
    for (pair& p : mailboxes) {
      all.go([&p] {
        weft::this_goroutine::lock_thread();
        const pid_t mine = thread_id();
        for (int i = 0; i < rounds; ++i) {
          weft::wait_group g;
          g.add(1);
          p.gate = &g;
          g.wait();
          ASSERT_EQ(thread_id(), mine);
        }
        weft::this_goroutine::unlock_thread();
      });
    }
    all.wait();
  });
  for (std::thread& t : wakers) t.join();
}

// max_procs takes processors away from locked goroutines as well as from others.
TEST_F(thread_lock, locked_goroutines_live_through_changes_of_max_procs) {
  const procs_scope scope(4);
  weft::run([] {
    weft::wait_group all;
    std::atomic<bool> stop{false};
    for (int worker = 0; worker < 4; ++worker) {
      all.go([&] {
        weft::this_goroutine::lock_thread();
        const pid_t mine = thread_id();
        while (!stop) {
          weft::this_goroutine::yield();
          weft::wait_group g;
          g.go([] {});
          g.wait();
          ASSERT_EQ(thread_id(), mine);
        }
        weft::this_goroutine::unlock_thread();
      });
    }
    for (int i = 0; i < scaled(200, 30); ++i) {
      weft::max_procs(1 + i % 6);
      weft::this_goroutine::yield();
    }
    stop = true;
    all.wait();
  });
}

// A locked goroutine's time-outs and its results race as everybody's.
TEST_F(thread_lock, locked_goroutines_time_out) {
  const procs_scope scope(2);
  weft::run([] {
    crowd others(2);
    weft::this_goroutine::lock_thread();
    const pid_t mine = thread_id();
    for (int i = 0; i < scaled(100, 20); ++i) {
      weft::wait_group gate;
      gate.add(1);
      auto f = weft::async([&] { gate.wait(); });
      EXPECT_EQ(f.wait_for(200us), std::future_status::timeout);
      EXPECT_EQ(thread_id(), mine);
      gate.done();
      f.get();
      EXPECT_EQ(thread_id(), mine);
    }
    weft::this_goroutine::unlock_thread();
  });
}

// Each gives the processor straight to the other; other goroutines must get their turns all the
// same.
TEST_F(thread_lock, two_that_wake_each_other_starve_nobody) {
  const procs_scope one(1);
  std::atomic<bool> stop{false};
  weft::chan<int> ping;
  weft::chan<int> pong;
  weft::wait_group pair;
  pair.go([&] {
    weft::this_goroutine::lock_thread();
    while (!stop) {
      ping.send(1);
      pong.recv();
    }
    ping.close();
    weft::this_goroutine::unlock_thread();
  });
  pair.go([&] {
    weft::this_goroutine::lock_thread();
    while (ping.recv()) pong.send(1);
    weft::this_goroutine::unlock_thread();
  });
  weft::wait_group others;
  std::atomic<int> ran{0};
  for (int i = 0; i < 10; ++i) {
    others.go([&] {
      weft::this_goroutine::sleep_for(1ms);
      for (int k = 0; k < 10; ++k) weft::this_goroutine::yield();
      ++ran;
    });
  }
  others.wait();
  EXPECT_EQ(ran, 10);
  stop = true;
  pair.wait();
}

}  // namespace
