// mini_sync.hpp: what the planted bugs are made of has none itself.
#include "mini_sync.hpp"
#include "eventually.hpp"

#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::strategy;
using weft::test::var;
namespace mini = weft::mini;

void passes(const std::function<void()>& program) {
  constexpr std::uint64_t runs{weft::test::scaled(5'000, 200)};
  for (const strategy how : {strategy::random, strategy::priorities}) {
    weft::test::explore({.how = how, .runs = runs}, program);
  }
  weft::test::explore({.how = strategy::exhaustive, .runs = 4 * runs}, program);
}

// No two goroutines are inside at the same time, and each sees what the one before did.
TEST(mini_sync, a_mutex_lets_in_one_at_a_time) {
  passes([] {
    mini::mutex m;
    var<int> n{0, "n"};
    weft::wait_group all;
    for (int i = 0; i < 3; ++i) {
      all.go([&] {
        const std::lock_guard hold(m);
        ++n;
      });
    }
    all.wait();
    EXPECT_EQ(n.get(), 3);
  });
}

TEST(mini_sync, a_condition_variable_loses_no_notification) {
  passes([] {
    mini::mutex m;
    mini::condition_variable changed;
    int turn = 0;
    weft::wait_group all;
    for (const int mine : {0, 1}) {
      all.go([&, mine] {
        std::unique_lock lock(m);
        while (turn != mine) changed.wait(lock);
        ++turn;
        changed.notify_one();
      });
    }
    all.wait();
    EXPECT_EQ(turn, 2);
  });
}

// Whether it is notified or its time is up, it has the lock again, and the one is not the other.
TEST(mini_sync, a_timed_wait_takes_a_notification_or_leaves_it_to_others) {
  passes([] {
    mini::mutex m;
    mini::condition_variable changed;
    bool in_time = false;
    weft::wait_group all;
    all.go([&] {
      std::unique_lock lock(m);
      in_time = changed.wait_for(lock, 5ms);
    });
    all.go([&] {
      std::unique_lock lock(m);
      changed.wait(lock);
    });
    weft::this_goroutine::sleep_for(5ms);
    weft::test::wait();  // both wait, or one has given up
    changed.notify_one();
    weft::test::wait();
    if (in_time) changed.notify_one();
    all.wait();
  });
}

// Every value arrives once, those of one sender in their order, however little room there is.
TEST(mini_sync, a_channel_delivers_every_value_once_and_in_order) {
  for (const std::size_t capacity : {0u, 1u, 2u}) {
    passes([capacity] {
      mini::chan<int> c(capacity);
      weft::wait_group senders;
      weft::wait_group receivers;
      std::vector<int> received;
      for (const int first : {10, 20}) {
        senders.go([&c, first] {
          c.send(first);
          c.send(first + 1);
        });
      }
      receivers.go([&] {
        while (const auto v = c.receive()) received.push_back(*v);
      });
      senders.wait();
      c.close();
      receivers.wait();
      ASSERT_EQ(received.size(), 4u);
      std::vector<int> of_first;
      for (const int v : received) {
        if (v < 20) of_first.push_back(v);
      }
      EXPECT_EQ(of_first, (std::vector{10, 11}));
    });
  }
}

TEST(mini_sync, close_wakes_receivers_and_refuses_senders) {
  passes([] {
    mini::chan<int> empty;
    mini::chan<int> full(1);
    full.send(1);
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) {
      all.go([&] { EXPECT_FALSE(empty.receive().has_value()); });
    }
    all.go([&] { EXPECT_THROW(full.send(2), std::logic_error); });
    full.close();
    empty.close();
    all.wait();
    EXPECT_EQ(full.receive(), 1);
    EXPECT_FALSE(full.receive().has_value());
    EXPECT_THROW(full.close(), std::logic_error);
  });
}

// A value is received by the one whose time was not up, or stays for the next.
TEST(mini_sync, a_receive_that_times_out_takes_no_value) {
  passes([] {
    mini::chan<int> c(1);
    weft::wait_group all;
    std::optional<int> early;
    all.go([&] { early = c.receive_for(5ms); });
    weft::this_goroutine::sleep_for(5ms);
    c.send(1);
    all.wait();
    EXPECT_EQ(early ? early : c.receive(), 1);
  });
}

// stop() says what comes true.
TEST(mini_sync, a_timer_fires_unless_it_was_stopped) {
  passes([] {
    const auto fired = std::make_shared<weft::test::atomic<int>>(0);
    mini::timer t(5ms, [fired] { ++*fired; });
    weft::this_goroutine::sleep_for(5ms);
    const bool stopped = t.stop();
    weft::test::wait();
    EXPECT_EQ(fired->load(), stopped ? 0 : 1);
    EXPECT_FALSE(t.stop());
  });
}

TEST(mini_sync, a_cancellation_reaches_everybody) {
  passes([] {
    mini::cancellation c;
    var<int> reason{0, "reason"};
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) {
      all.go([&] {
        while (!c.wait_for(5ms)) {
        }
        EXPECT_EQ(reason.get(), 1);
      });
    }
    weft::this_goroutine::sleep_for(5ms);
    reason = 1;
    c.cancel();
    all.wait();
  });
}

}  // namespace
