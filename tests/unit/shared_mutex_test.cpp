// shared_mutex: readers together, writers alone, no starvation, readers in slots and in the center.
#include "runtime_fixture.hpp"

#include <weft/sync.hpp>
#include <weft/test.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::detail::no_deadline;
using weft::test::bubble;
using weft::test::explore;
using weft::test::procs_scope;
using weft::test::runs;
using weft::test::runtime_test;
using weft::test::scaled;

class shared_mutex : public runtime_test {};

static_assert(!std::is_copy_constructible_v<weft::shared_mutex>);
constinit weft::shared_mutex made_at_compile_time;

// One whose readers spread before they could know that it pays.
class spreading_mutex {
 public:
  void lock() {
    weft::test::point();
    core_.lock_until(no_deadline);
  }
  bool try_lock() {
    weft::test::point();
    return core_.try_lock();
  }
  bool try_lock_for(std::chrono::nanoseconds d) {
    weft::test::point();
    return core_.lock_until(weft::detail::deadline_after(d.count()));
  }
  void unlock() {
    weft::test::point();
    core_.unlock();
  }
  void lock_shared() {
    weft::test::point();
    core_.spread();
    weft::test::point();
    core_.lock_shared_until(no_deadline);
  }
  bool try_lock_shared_for(std::chrono::nanoseconds d) {
    weft::test::point();
    return core_.lock_shared_until(weft::detail::deadline_after(d.count()));
  }
  bool try_lock_shared() {
    weft::test::point();
    core_.spread();
    return core_.try_lock_shared();
  }
  void unlock_shared() {
    weft::test::point();
    core_.unlock_shared();
  }
  bool is_spread() const { return core_.is_spread(); }

 private:
  weft::detail::guarded<weft::detail::shared_mutex_core> core_;
};

// Go's table of TryLock and TryRLock.
template <class Mutex>
void check_table() {
  Mutex m;
  m.lock();
  EXPECT_FALSE(m.try_lock());
  EXPECT_FALSE(m.try_lock_shared());
  m.unlock();
  EXPECT_TRUE(m.try_lock());
  EXPECT_FALSE(m.try_lock_shared());
  m.unlock();
  m.lock_shared();
  EXPECT_TRUE(m.try_lock_shared());
  EXPECT_FALSE(m.try_lock());
  m.unlock_shared();
  EXPECT_FALSE(m.try_lock());
  EXPECT_TRUE(m.try_lock_shared());
  m.unlock_shared();
  m.unlock_shared();
  EXPECT_TRUE(m.try_lock());
  m.unlock();
}

TEST_F(shared_mutex, try_lock_tells_who_is_in) {
  check_table<weft::shared_mutex>();
  check_table<spreading_mutex>();
  const std::shared_lock held(made_at_compile_time);
  EXPECT_FALSE(made_at_compile_time.try_lock());
}

TEST_F(shared_mutex, works_with_the_standard_locks) {
  weft::shared_mutex m;
  weft::mutex other;
  {
    const std::shared_lock a(m);
    const std::shared_lock b(m);
    EXPECT_TRUE(a.owns_lock() && b.owns_lock());
    std::unique_lock c(m, std::try_to_lock);
    EXPECT_FALSE(c.owns_lock());
    std::unique_lock d(m, 1ms);
    EXPECT_FALSE(d.owns_lock());
  }
  {
    const std::scoped_lock both(m, other);
    std::shared_lock c(m, std::try_to_lock);
    EXPECT_FALSE(c.owns_lock());
    std::shared_lock d(m, std::chrono::steady_clock::now() + 1ms);
    EXPECT_FALSE(d.owns_lock());
    std::shared_lock e(m, 0s);
    EXPECT_FALSE(e.owns_lock());
  }
  EXPECT_TRUE(m.try_lock_until(std::chrono::system_clock::now() - 1h));
  m.unlock();
}

// Slots are for readers that collide; the next writer gathers them.
TEST_F(shared_mutex, a_writer_gathers_readers_that_spread) {
  spreading_mutex m;
  m.lock_shared();
  EXPECT_TRUE(m.is_spread());
  std::thread([&] { m.unlock_shared(); }).join();  // by another slot than it came
  m.lock();
  EXPECT_FALSE(m.is_spread());
  m.unlock();
  m.lock_shared();
  EXPECT_TRUE(m.is_spread());
  m.unlock_shared();
}

// Go's ParallelReaders: all readers hold the mutex at the same time.
TEST_F(shared_mutex, readers_hold_it_together) {
  for (const int n : {1, 3, 4}) {
    weft::run([n] {
      const procs_scope p(n);
      weft::shared_mutex m;
      weft::barrier<> in(n);
      weft::wait_group all;
      for (int i = 0; i < n; ++i) {
        all.go([&] {
          const std::shared_lock lock(m);
          in.arrive_and_wait();
        });
      }
      all.wait();
    });
  }
}

// Writers alone, readers with readers only; what a writer did readers see, and the other way round.
TEST_F(shared_mutex, excludes_in_every_order) {
  explore({.runs = runs(3'000)}, [] {
    weft::shared_mutex m;
    weft::test::var<int> value{0};
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) {
      all.go([&] {
        for (int k = 0; k < 2; ++k) {
          const std::lock_guard lock(m);
          ++value;
        }
      });
    }
    for (int i = 0; i < 3; ++i) {
      all.go([&] {
        for (int k = 0; k < 2; ++k) {
          const std::shared_lock lock(m);
          const int before = value;
          weft::this_goroutine::yield();
          EXPECT_EQ(value, before);
        }
      });
    }
    all.wait();
    EXPECT_EQ(value, 4);
  });
}

// A test must see that readers do not order each other.
TEST_F(shared_mutex, writing_under_the_shared_lock_is_a_race) {
  const auto r = weft::test::try_explore({.runs = 500, .shrink = false}, [] {
    weft::shared_mutex m;
    weft::test::var<int> value{0};
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) {
      all.go([&] {
        const std::shared_lock lock(m);
        ++value;
      });
    }
    all.wait();
  });
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.failure.find("race"), std::string::npos) << r.failure;
}

// As above, with slots, timeouts and tries: holders are counted, and at the end there is none.
TEST_F(shared_mutex, excludes_with_spread_readers_and_timeouts_in_every_order) {
  explore({.runs = runs(6'000)}, [] {
    spreading_mutex m;
    weft::test::atomic<int> writers{0};
    weft::test::atomic<int> readers{0};
    weft::wait_group all;
    for (int i = 0; i < 3; ++i) {
      all.go([&, i] {
        for (int k = 0; k < 2; ++k) {
          if (i == 0) {
            m.lock();
          } else if (i == 1 ? !m.try_lock_for(std::chrono::milliseconds(1)) : !m.try_lock()) {
            continue;
          }
          EXPECT_EQ(++writers, 1);
          EXPECT_EQ(readers, 0);
          if (i == 0) weft::this_goroutine::sleep_for(1ms);
          --writers;
          m.unlock();
        }
      });
    }
    for (int i = 0; i < 3; ++i) {
      all.go([&, i] {
        for (int k = 0; k < 2; ++k) {
          if (i == 0) {
            m.lock_shared();
          } else if (i == 1 ? !m.try_lock_shared_for(1ms) : !m.try_lock_shared()) {
            continue;
          }
          ++readers;
          EXPECT_EQ(writers, 0);
          if (k == 1) weft::this_goroutine::sleep_for(1ms);
          --readers;
          m.unlock_shared();
        }
      });
    }
    all.wait();
    EXPECT_TRUE(m.try_lock());
    m.unlock();
  });
}

// A stream of readers that never leaves a gap does not keep a writer out.
TEST_F(shared_mutex, a_waiting_writer_holds_back_new_readers) {
  bubble([] {
    weft::shared_mutex m;
    m.lock_shared();
    weft::wait_group all;
    std::vector<char> order;
    all.go([&] {
      m.lock();
      order.push_back('w');
      weft::test::wait();
      m.unlock();
    });
    weft::test::wait();
    EXPECT_FALSE(m.try_lock_shared());
    for (int i = 0; i < 3; ++i) {
      all.go([&] {
        m.lock_shared();
        order.push_back('r');
        m.unlock_shared();
      });
    }
    weft::test::wait();
    EXPECT_TRUE(order.empty());
    m.unlock_shared();
    all.wait();
    EXPECT_EQ(order, (std::vector<char>{'w', 'r', 'r', 'r'}));
  });
}

// A stream of writers does not keep readers out: the first that unlocks lets them all in.
TEST_F(shared_mutex, an_unlocking_writer_lets_in_all_readers_that_wait) {
  bubble([] {
    weft::shared_mutex m;
    m.lock();
    weft::wait_group all;
    std::vector<char> order;
    for (int i = 0; i < 3; ++i) {
      all.go([&] {
        m.lock();
        order.push_back('w');
        m.unlock();
      });
      all.go([&] {
        m.lock_shared();
        order.push_back('r');
        weft::this_goroutine::sleep_for(1ms);
        m.unlock_shared();
      });
      weft::test::wait();
    }
    m.unlock();
    m.lock();
    m.unlock();
    all.wait();
    EXPECT_EQ(order, (std::vector<char>{'r', 'r', 'r', 'w', 'w', 'w'}));
  });
}

// When the only writer that waited gives up, whom it held back goes on.
TEST_F(shared_mutex, a_writer_that_gives_up_lets_readers_go_on) {
  bubble([] {
    weft::shared_mutex m;
    m.lock_shared();
    weft::wait_group all;
    all.go([&] { EXPECT_FALSE(m.try_lock_for(10ms)); });
    weft::test::wait();
    const auto begin = weft::detail::clock_now_ns();
    EXPECT_FALSE(m.try_lock_shared_for(5ms));
    m.lock_shared();
    EXPECT_EQ(weft::detail::clock_now_ns() - begin, 10'000'000);
    m.unlock_shared();
    m.unlock_shared();
    all.wait();
    EXPECT_TRUE(m.try_lock());
    m.unlock();
  });
}

// Go's hammer, with plain threads mixed in.
template <class Mutex>
void hammer(int procs, int readers) {
  const procs_scope p(procs);
  Mutex m;
  std::atomic<int> activity{0};
  long guarded = 0;
  const int turns = scaled(400, 50);
  constexpr int writer = 10'000;
  const auto read = [&] {
    long last = 0;
    for (int i = 0; i < turns; ++i) {
      m.lock_shared();
      EXPECT_LT(++activity, writer);
      EXPECT_GE(guarded, last);
      last = guarded;
      if (i % 16 == 0) weft::this_goroutine::yield();
      --activity;
      m.unlock_shared();
    }
  };
  const auto write = [&] {
    for (int i = 0; i < turns; ++i) {
      if (i % 3 == 0) {
        if (!m.try_lock()) continue;
      } else {
        m.lock();
      }
      EXPECT_EQ(activity.fetch_add(writer), 0);
      ++guarded;
      if (i % 16 == 0) weft::this_goroutine::yield();
      activity -= writer;
      m.unlock();
    }
  };
  std::thread reader(read);
  std::thread other(write);
  weft::run([&] {
    weft::wait_group all;
    all.go(write);
    for (int i = 0; i < readers / 2; ++i) all.go(read);
    all.go(write);
    for (int i = readers / 2; i < readers; ++i) all.go(read);
    all.wait();
  });
  reader.join();
  other.join();
  EXPECT_TRUE(m.try_lock());
  m.unlock();
}

TEST_F(shared_mutex, excludes_goroutines_and_threads_on_real_processors) {
  for (const int procs : {1, 4, 10}) {
    for (const int readers : {1, 3, 10}) hammer<weft::shared_mutex>(procs, readers);
  }
}

TEST_F(shared_mutex, excludes_with_spread_readers_on_real_processors) {
  for (const int procs : {1, 2, 8}) {
    for (const int readers : {1, 10}) hammer<spreading_mutex>(procs, readers);
  }
}

// The last to unlock may destroy the mutex, be it a reader or a writer.
template <class Mutex>
void destroy_after_last() {
  const procs_scope four(4);
  for (int round = 0; round < scaled(1'500, 150); ++round) {
    struct shared {
      Mutex m;
      std::atomic<int> left{4};
    };
    auto* const s = new shared;
    weft::run([&] {
      weft::wait_group all;
      for (int i = 0; i < 4; ++i) {
        all.go([s, i] {
          if (i % 2 == 0) {
            // The one that counts to 0 under the exclusive lock knows that nobody is in and that
            // nobody will come.
            s->m.lock();
            const bool last = --s->left == 0;
            s->m.unlock();
            if (last) delete s;
          } else {
            s->m.lock_shared();
            s->m.unlock_shared();
            s->m.lock();
            const bool last = --s->left == 0;
            s->m.unlock();
            if (last) delete s;
          }
        });
      }
      all.wait();
    });
  }
}

TEST_F(shared_mutex, may_be_destroyed_by_the_goroutine_that_unlocked_it_last) {
  destroy_after_last<weft::shared_mutex>();
  destroy_after_last<spreading_mutex>();
}

}  // namespace
