// wait_group_test.cpp: counting, waiting, misuse, and the moment from which a wait_group may go.
#include "runtime_fixture.hpp"

#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using weft::test::eventually;
using weft::test::procs_scope;
using weft::test::runtime_test;
using weft::test::scaled;
using weft::test::until_waiting;

class wait_group : public runtime_test {};

static_assert(!std::is_copy_constructible_v<weft::wait_group>);
static_assert(!std::is_copy_assignable_v<weft::wait_group>);

// With nothing to wait for, wait returns: it does not wait for the first add.
TEST_F(wait_group, wait_on_an_empty_group_returns) {
  weft::wait_group g;
  g.wait();
  weft::run([&] { g.wait(); });
  g.add(0);
  g.wait();
}

// What came before done is visible after wait; the data race would show in every program.
TEST_F(wait_group, what_precedes_done_is_visible_after_wait) {
  weft::run([] {
    const procs_scope four(4);
    constexpr std::size_t n = 200;
    std::vector<int> plain(n);
    weft::wait_group g;
    for (std::size_t i = 0; i < n; ++i) g.go([&, i] { plain[i] = static_cast<int>(i); });
    g.wait();
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(plain[i], static_cast<int>(i));
  });
}

// A group is used round after round; a flag left over from one round would break the next.
TEST_F(wait_group, is_used_again_eight_times) {
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group g;
    std::atomic<int> ended{0};
    for (int round = 1; round <= 8; ++round) {
      for (int i = 0; i < 500; ++i) {
        g.go([&] {
          weft::this_goroutine::yield();
          ++ended;
        });
      }
      g.wait();
      EXPECT_EQ(ended, 500 * round);
    }
  });
}

// A counter below 0 is a bug of the program; it hears of it, and the counter is as before.
TEST_F(wait_group, a_negative_counter_is_a_logic_error_and_changes_nothing) {
  weft::wait_group g;
  EXPECT_THROW(g.done(), std::logic_error);
  EXPECT_THROW(g.add(-1), std::logic_error);
  EXPECT_THROW(g.add(INT_MIN), std::logic_error);
  g.wait();
  g.add(2);
  EXPECT_THROW(g.add(-3), std::logic_error);
  EXPECT_THROW(g.add(INT_MIN), std::logic_error);
  g.add(-1);
  std::atomic<bool> through{false};
  std::thread waiter([&] {
    g.wait();
    through = true;
  });
  EXPECT_THROW(g.add(-2), std::logic_error);
  EXPECT_FALSE(through) << "the counter is still 1";
  g.done();
  waiter.join();
  EXPECT_THROW(g.done(), std::logic_error);
}

// Misuse by one goroutine must not release or lose waiters.
TEST_F(wait_group, misuse_beside_waiters_releases_nobody) {
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group g;
    weft::wait_group all;
    g.add(1);
    std::atomic<int> through{0};
    for (int i = 0; i < 20; ++i) {
      all.go([&] {
        g.wait();
        ++through;
      });
    }
    EXPECT_TRUE(until_waiting(20, weft::detail::wait_reason::wait_group));
    for (int i = 0; i < 1000; ++i) EXPECT_THROW(g.add(-2), std::logic_error);
    EXPECT_EQ(through, 0);
    g.done();
    all.wait();
    EXPECT_EQ(through, 20);
  });
}

// add with more than 1 and less than -1 are the same as that many single steps.
TEST_F(wait_group, adds_and_subtracts_in_bulk) {
  weft::run([] {
    weft::wait_group g;
    g.add(1000);
    weft::go([&] {
      g.add(-400);
      g.add(-599);
      g.done();
    });
    g.wait();
    g.add(INT_MAX);
    g.add(-INT_MAX);
    g.wait();
  });
}

// All waiters go on, goroutines and plain threads alike.
TEST_F(wait_group, releases_goroutines_and_threads_together) {
  for (int round = 0; round < scaled(50, 10); ++round) {
    weft::wait_group gate;
    std::atomic<int> through{0};
    gate.add(1);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        gate.wait();
        ++through;
      });
    }
    weft::run([&] {
      weft::wait_group all;
      for (int i = 0; i < 20; ++i) {
        all.go([&] {
          gate.wait();
          ++through;
        });
      }
      EXPECT_TRUE(until_waiting(20, weft::detail::wait_reason::wait_group));
      EXPECT_EQ(through, 0);
      gate.done();
      all.wait();
    });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(through, 24);
  }
}

// The last done may come while the waiter is on its way to sleep. A lost wake-up hangs here.
TEST_F(wait_group, a_done_that_races_with_wait_is_not_lost) {
  weft::run([] {
    const procs_scope four(4);
    for (int i = 0; i < scaled(50'000, 2'000); ++i) {
      weft::wait_group g;
      g.go([] {});
      g.wait();
    }
  });
}

// The group lives on the waiter's stack and is gone when wait has returned; a done that still
// touched it would write into somebody else's memory.
TEST_F(wait_group, may_be_destroyed_as_soon_as_wait_has_returned) {
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group all;
    std::atomic<int> touched{0};
    for (int worker = 0; worker < 8; ++worker) {
      all.go([&] {
        alignas(weft::wait_group) unsigned char memory[sizeof(weft::wait_group)];
        for (int i = 0; i < scaled(5'000, 300); ++i) {
          auto* const g = ::new (static_cast<void*>(memory)) weft::wait_group;
          g->add(3);
          for (int k = 0; k < 3; ++k) {
            weft::go([g, k] {
              if (k == 1) weft::this_goroutine::yield();
              g->done();
            });
          }
          g->wait();
          g->~wait_group();
          std::memset(memory, 0xa5, sizeof memory);
          weft::this_goroutine::yield();
          for (const unsigned char byte : memory) {
            if (byte != 0xa5) ++touched;
          }
        }
      });
    }
    all.wait();
    EXPECT_EQ(touched, 0);
  });
}

// As above, with plain threads as waiters: they sleep in the kernel and not in the scheduler.
TEST_F(wait_group, may_be_destroyed_by_a_thread_as_soon_as_wait_has_returned) {
  for (int i = 0; i < scaled(5'000, 300); ++i) {
    auto g = std::make_unique<weft::wait_group>();
    g->go([] {});
    g->go([] { weft::this_goroutine::yield(); });
    g->wait();
    g.reset();  // a sanitizer sees late accesses
  }
}

// Several waiters of one group, the first of which to wake destroys nothing before all are through.
TEST_F(wait_group, many_waiters_of_many_short_groups) {
  weft::run([] {
    const procs_scope four(4);
    for (int i = 0; i < scaled(2'000, 100); ++i) {
      auto g = std::make_shared<weft::wait_group>();
      weft::wait_group waiters;
      g->add(2);
      for (int k = 0; k < 3; ++k) waiters.go([g] { g->wait(); });
      weft::go([g] { g->done(); });
      weft::go([g] { g->done(); });
      g.reset();
      waiters.wait();
    }
  });
}

// A goroutine that ends by exit has ended: the group must hear of it.
TEST_F(wait_group, go_counts_a_goroutine_that_exits) {
  weft::run([] {
    weft::wait_group g;
    std::atomic<int> ran{0};
    for (int i = 0; i < 100; ++i) {
      g.go([&] {
        ++ran;
        weft::this_goroutine::exit();
      });
    }
    g.wait();
    EXPECT_EQ(ran, 100);
  });
}

// go takes what weft::go takes: move-only, large, lvalues, functions.
TEST_F(wait_group, go_takes_any_callable) {
  weft::run([] {
    weft::wait_group g;
    static std::atomic<int> sum;
    sum = 0;
    g.go([held = std::make_unique<int>(1)] { sum += *held; });
    g.go([ballast = std::array<int, 100>{2}] { sum += ballast[0]; });
    const auto constant = [] { sum += 4; };
    g.go(constant);
    auto changeable = [n = 8]() mutable { sum += n++; };
    g.go(changeable);
    g.go(+[] { sum += 16; });
    g.wait();
    EXPECT_EQ(sum, 31);
  });
}

struct throws_when_copied {
  throws_when_copied() = default;
  throws_when_copied(const throws_when_copied&) { throw std::runtime_error("no"); }
  void operator()() const {}
};

// A goroutine that could not be started is not counted, or wait would wait for it for ever.
TEST_F(wait_group, go_that_throws_counts_nothing) {
  weft::run([] {
    weft::wait_group g;
    const throws_when_copied f;
    EXPECT_THROW(g.go(f), std::runtime_error);
    g.wait();
    EXPECT_THROW(g.done(), std::logic_error);
  });
}

// After wait() the caller may look at what the goroutines held: it has been released.
TEST_F(wait_group, the_callables_are_gone_when_wait_returns) {
  weft::run([] {
    const procs_scope four(4);
    for (int i = 0; i < scaled(2'000, 200); ++i) {
      auto held = std::make_shared<int>(1);
      weft::wait_group g;
      for (int k = 0; k < 3; ++k) g.go([held] {});
      g.wait();
      ASSERT_EQ(held.use_count(), 1);
    }
  });
}

// As above, for a callable that can only be copied, such as a lambda that captures a const object.
TEST_F(wait_group, callables_that_can_only_be_copied_are_gone_too) {
  weft::run([] {
    const procs_scope four(4);
    for (int i = 0; i < scaled(2'000, 200); ++i) {
      const auto held = std::make_shared<int>(1);
      weft::wait_group g;
      for (int k = 0; k < 3; ++k) g.go([held] {});
      g.wait();
      ASSERT_EQ(held.use_count(), 1);
    }
  });
}

// Goroutines add to the group they are counted in, as a tree walk does.
TEST_F(wait_group, grows_while_somebody_waits) {
  struct walk {
    static void down(weft::wait_group& g, std::atomic<int>& n, int depth) {
      ++n;
      if (depth == 0) return;
      g.go([&, depth] { down(g, n, depth - 1); });
      g.go([&, depth] { down(g, n, depth - 1); });
    }
  };
  constexpr int depth = scaled(14, 9);
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group g;
    std::atomic<int> n{0};
    g.go([&] { walk::down(g, n, depth); });
    g.wait();
    EXPECT_EQ(n, (2 << depth) - 1);
  });
}

}  // namespace
