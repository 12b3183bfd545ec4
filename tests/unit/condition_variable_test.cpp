// Condition variables: which waiters are notified, in which order, and what happens at a time-out.
#include "runtime_fixture.hpp"

#include <weft/sync.hpp>
#include <weft/test.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
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
using lock_type = std::unique_lock<weft::mutex>;

class condition_variable : public runtime_test {};

static_assert(!std::is_copy_constructible_v<weft::condition_variable>);
constinit weft::condition_variable made_at_compile_time;

// Go's Signal: each notify_one lets exactly one waiter go on.
TEST_F(condition_variable, one_goes_on_for_each_notify_one) {
  explore({.runs = runs(1'000)}, [] {
    weft::mutex m;
    weft::condition_variable c;
    int waiting = 0;
    int awake = 0;
    weft::wait_group all;
    for (int i = 0; i < 3; ++i) {
      all.go([&] {
        lock_type lock(m);
        ++waiting;
        c.wait(lock);
        EXPECT_TRUE(lock.owns_lock());
        ++awake;
      });
    }
    weft::test::wait();
    EXPECT_EQ(waiting, 3);
    for (int i = 1; i <= 3; ++i) {
      c.notify_one();
      weft::test::wait();
      EXPECT_EQ(awake, i);
    }
    c.notify_one();  // nobody
    all.wait();
  });
}

// Go's SignalGenerations: the oldest first, also against those who come later.
TEST_F(condition_variable, notifies_in_the_order_of_arrival) {
  bubble([] {
    weft::mutex m;
    weft::condition_variable c;
    std::vector<int> order;
    weft::wait_group all;
    for (int i = 0; i < 100; ++i) {
      all.go([&, i] {
        lock_type lock(m);
        c.wait(lock);
        order.push_back(i);
      });
      weft::test::wait();
      if (i > 0) {
        c.notify_one();
        weft::test::wait();
        EXPECT_EQ(order.back(), i - 1);
      }
    }
    c.notify_one();
    all.wait();
  });
}

// Go's Broadcast: everyone exactly once per round.
TEST_F(condition_variable, notify_all_lets_everyone_go_on_once) {
  weft::run([] {
    const procs_scope four(4);
    constexpr int n = 200;
    weft::mutex m;
    weft::condition_variable c;
    weft::wait_group all;
    int round = 0;
    int waiting = 0;
    std::vector<int> woken(n);
    for (std::size_t i = 0; i < n; ++i) {
      all.go([&, i] {
        lock_type lock(m);
        while (round < 5) {
          const int before = round;
          ++waiting;
          c.wait(lock);
          EXPECT_EQ(round, before + 1);
          ++woken[i];
        }
      });
    }
    for (int r = 1; r <= 5; ++r) {
      EXPECT_TRUE(weft::test::eventually([&] {
        const std::lock_guard lock(m);
        return waiting == n;
      }));
      const std::lock_guard lock(m);
      waiting = 0;
      round = r;
      c.notify_all();
    }
    all.wait();
    EXPECT_EQ(woken, std::vector<int>(n, 5));
  });
}

// Go's SignalStealing: goroutines that waited when notify_all was called go on, whatever arrives
// later.
TEST_F(condition_variable, a_later_waiter_takes_nobodys_notification) {
  explore({.runs = runs(1'500)}, [] {
    weft::mutex m;
    weft::condition_variable c;
    weft::test::var<bool> flag{false};
    weft::wait_group all;
    all.go([&] {
      lock_type lock(m);
      while (!flag) c.wait(lock);
    });
    all.go([&] {
      lock_type lock(m);
      flag = true;
      c.notify_one();
      lock.unlock();
      lock.lock();
      flag = true;
    });
    all.wait();
  });
}

// The same with one notification: it belongs to who waited before it was given, not to who began to
// wait while that one was on its way.
TEST_F(condition_variable, a_notification_is_not_stolen_by_a_later_waiter) {
  explore({.runs = runs(2'000)}, [] {
    weft::mutex m;
    weft::condition_variable c;
    bool first_went_on = false;
    bool done = false;
    weft::wait_group all;
    all.go([&] {
      lock_type lock(m);
      c.wait(lock);
      first_went_on = true;
    });
    weft::test::wait();
    all.go([&] {
      lock_type lock(m);
      while (!done) c.wait(lock);
    });
    c.notify_one();
    weft::test::wait();
    {
      const std::lock_guard lock(m);
      EXPECT_TRUE(first_went_on);
      done = true;
    }
    c.notify_all();
    all.wait();
  });
}

// Three who pass a turn on, each waiting only if it is not there yet: nobody goes on too early, and
// no turn is missed.
TEST_F(condition_variable, passes_a_turn_from_one_to_the_next) {
  explore({.runs = runs(2'000)}, [] {
    weft::mutex m;
    weft::condition_variable c;
    weft::test::var<int> turn{0};
    weft::wait_group all;
    all.go([&] {
      lock_type lock(m);
      turn = 1;
      c.wait(lock);
      EXPECT_EQ(turn, 2);
      turn = 3;
      c.notify_one();
    });
    all.go([&] {
      for (;;) {
        {
          const std::lock_guard lock(m);
          if (turn == 1) {
            turn = 2;
            c.notify_one();
            return;
          }
        }
        weft::this_goroutine::yield();
      }
    });
    all.go([&] {
      for (;;) {
        {
          lock_type lock(m);
          if (turn == 2) {
            c.wait(lock);
            EXPECT_EQ(turn, 3);
            return;
          }
          if (turn == 3) return;
        }
        weft::this_goroutine::yield();
      }
    });
    all.wait();
  });
}

// A queue of one place between two: nothing lost, nothing twice, in every order.
TEST_F(condition_variable, hands_values_over_in_every_order) {
  explore({.runs = runs(2'000)}, [] {
    weft::mutex m;
    weft::condition_variable full;
    weft::condition_variable empty;
    weft::test::var<int> place{0};
    int sum = 0;
    weft::wait_group all;
    for (int p = 0; p < 2; ++p) {
      all.go([&, p] {
        for (int i = 1; i <= 2; ++i) {
          lock_type lock(m);
          empty.wait(lock, [&] { return place.get() == 0; });
          place = 10 * p + i;
          full.notify_one();
        }
      });
    }
    for (int k = 0; k < 4; ++k) {
      lock_type lock(m);
      full.wait(lock, [&] { return place.get() != 0; });
      sum += place;
      place = 0;
      empty.notify_one();
    }
    all.wait();
    EXPECT_EQ(sum, 1 + 2 + 11 + 12);
  });
}

TEST_F(condition_variable, gives_up_when_its_time_is_over) {
  bubble([] {
    weft::mutex m;
    weft::condition_variable c;
    lock_type lock(m);
    const auto begin = weft::detail::clock_now_ns();
    EXPECT_EQ(c.wait_for(lock, 10ms), std::cv_status::timeout);
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_EQ(weft::detail::clock_now_ns() - begin, 10'000'000);
    EXPECT_EQ(c.wait_until(lock, std::chrono::steady_clock::now() - 1s), std::cv_status::timeout);
    EXPECT_EQ(c.wait_until(lock, std::chrono::system_clock::now() + 1s), std::cv_status::timeout);
    EXPECT_FALSE(c.wait_for(lock, 1ms, [] { return false; }));
    EXPECT_TRUE(c.wait_for(lock, 1h, [] { return true; }));
    EXPECT_FALSE(c.wait_until(lock, std::chrono::steady_clock::now() + 1ms, [] { return false; }));
    bool set = false;
    weft::wait_group all;
    all.go([&] {
      weft::this_goroutine::sleep_for(30min);
      const std::lock_guard other(m);
      set = true;
      c.notify_one();
    });
    EXPECT_TRUE(c.wait_for(lock, 1h, [&] { return set; }));
    lock.unlock();
    all.wait();
  });
}

// A notification never goes to one whose time is over, so it is never lost.
TEST_F(condition_variable, a_timed_out_waiter_is_never_the_one_that_is_notified) {
  explore({.runs = runs(5'000)}, [] {
    weft::mutex m;
    weft::condition_variable c;
    int notified = 0;
    bool in_time = false;
    weft::wait_group all;
    all.go([&] {
      lock_type lock(m);
      in_time = c.wait_for(lock, 2ms) == std::cv_status::no_timeout;
      if (in_time) ++notified;
    });
    weft::test::wait();
    all.go([&] {
      lock_type lock(m);
      c.wait(lock);
      ++notified;
    });
    weft::test::wait();
    weft::this_goroutine::sleep_for(1ms);
    c.notify_one();
    weft::this_goroutine::sleep_for(10ms);
    weft::test::wait();
    {
      const std::lock_guard lock(m);
      EXPECT_EQ(notified, 1);
    }
    c.notify_all();
    all.wait();
    EXPECT_EQ(notified, in_time ? 2 : 1);
  });
}

TEST_F(condition_variable, works_between_goroutines_and_threads) {
  for (const int procs : {1, 2, 8}) {
    const procs_scope p(procs);
    weft::mutex m;
    weft::condition_variable c;
    std::deque<int> queue;
    bool closed = false;
    std::atomic<long> sum{0};
    const int each = scaled(2'000, 200);
    const auto consume = [&] {
      for (;;) {
        lock_type lock(m);
        while (queue.empty() && !closed) c.wait_for(lock, 100us);
        if (queue.empty()) return;
        const int v = queue.front();
        queue.pop_front();
        lock.unlock();
        sum += v;
      }
    };
    const auto produce = [&] {
      for (int i = 0; i < each; ++i) {
        const std::lock_guard lock(m);
        queue.push_back(i);
        c.notify_one();
      }
    };
    std::vector<std::thread> threads;
    threads.emplace_back(consume);
    weft::run([&] {
      weft::wait_group consumers;
      weft::wait_group producers;
      for (int i = 0; i < 3; ++i) {
        consumers.go(consume);
        producers.go(produce);
      }
      producers.add(1);
      std::thread extra([&] {
        produce();
        producers.done();
      });
      producers.wait();  // not by join, which would hold the only processor
      extra.join();
      {
        const std::lock_guard lock(m);
        closed = true;
      }
      c.notify_all();
      consumers.wait();
    });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(sum, 4L * each * (each - 1) / 2);
  }
}

// It may be destroyed once all waiters have been notified, although they have not run yet.
TEST_F(condition_variable, may_be_destroyed_when_everyone_is_notified) {
  explore({.runs = 500}, [] {
    weft::mutex m;
    auto c = std::make_unique<weft::condition_variable>();
    bool gone = false;
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) {
      all.go([&, i] {
        lock_type lock(m);
        if (gone) return;
        i == 0 ? c->wait(lock) : (void)c->wait_for(lock, 3ms);
      });
    }
    weft::this_goroutine::sleep_for(3ms);
    {
      const std::lock_guard lock(m);
      gone = true;
      c->notify_all();
      c.reset();
    }
    all.wait();
  });
}

}  // namespace
