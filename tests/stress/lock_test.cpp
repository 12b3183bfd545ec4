// Locks between goroutines, bound goroutines and plain threads, with and without deadlines and
// contexts, on 1, 2, 8 and changing numbers of processors.
#include "stress_fixture.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

class locks : public test::stress_test {
 protected:
  // Runs part(random) by `members`, one of them a plain thread and one bound to its own, again and
  // again, on each number of processors in turn. between() is called when all have ended.
  template <class F, class G>
  void crowd(int members, F part, G between) {
    on_all_processors([&](base::random& random) {
      wait_group all;
      std::thread thread([&part, seed = random.next()] { part(base::random(seed)); });
      for (int i = 1; i < members; ++i) {
        all.go([&part, i, seed = random.next()] {
          if (i == 1) this_goroutine::lock_thread();
          part(base::random(seed));
        });
      }
      all.wait();
      thread.join();
      between();
    });
  }
};

// Takes the lock in some way. Returns: whether it has it.
template <class Mutex>
bool take(Mutex& m, base::random& random) {
  switch (random.below(8)) {
    case 0:
      return m.try_lock();
    case 1:
      return m.try_lock_for(std::chrono::microseconds(random.below(100)));
    case 2: {
      auto [ctx, cancel] =
          with_timeout(context::background(), std::chrono::microseconds(random.below(100)));
      const bool got = !m.lock(ctx);
      cancel();
      return got;
    }
    default:
      m.lock();
      return true;
  }
}

TEST_F(locks, a_mutex_has_one_holder) {
  mutex m;
  std::uint64_t inside = 0;  // guarded by m
  std::atomic<std::uint64_t> held{0};
  crowd(
      8,
      [&](base::random random) {
        for (int i = 0; i < test::scaled(500, 50); ++i) {
          if (!take(m, random)) continue;
          ++inside;
          if (random.below(64) == 0) this_goroutine::yield();
          if (random.below(256) == 0) this_goroutine::sleep_for(20us);
          m.unlock();
          held.fetch_add(1, std::memory_order_relaxed);
        }
        // Long enough to get the bias.
        for (int i = 0; i < static_cast<int>(random.below(3'000)); ++i) {
          const std::lock_guard hold(m);
          ++inside;
          held.fetch_add(1, std::memory_order_relaxed);
        }
      },
      [&] { EXPECT_EQ(inside, held); });
}

TEST_F(locks, a_shared_mutex_has_one_writer_or_readers) {
  shared_mutex m;
  std::uint64_t a = 0;  // guarded by m: the same, always
  std::uint64_t b = 0;
  crowd(
      8,
      [&](base::random random) {
        for (int i = 0; i < test::scaled(400, 50); ++i) {
          if (random.below(4) == 0) {
            if (!take(m, random)) continue;
            ++a;
            if (random.below(32) == 0) this_goroutine::yield();
            ++b;
            m.unlock();
          } else {
            const std::shared_lock hold(m);
            EXPECT_EQ(a, b);
            if (random.below(32) == 0) this_goroutine::yield();
            EXPECT_EQ(a, b);
          }
        }
      },
      [&] {
        EXPECT_TRUE(m.try_lock());
        m.unlock();
      });
}

// A bounded buffer of a mutex and two conditions, beside one of two semaphores.
TEST_F(locks, conditions_and_semaphores_lose_nobody) {
  mutex m;
  condition_variable not_empty;
  condition_variable not_full;
  int filled = 0;  // guarded by m
  counting_semaphore<> places(2);
  std::atomic<int> in_places{0};
  crowd(
      8,
      [&](base::random random) {
        for (int i = 0; i < test::scaled(100, 20); ++i) {
          // Each puts one in and takes one out, so no goroutine waits for ever.
          {
            std::unique_lock hold(m);
            not_full.wait(hold, [&] { return filled < 4; });
            ++filled;
            not_empty.notify_one();
          }
          {
            std::unique_lock hold(m);
            auto [ctx, cancel] = with_timeout(context::background(), 30us);
            const bool there = not_empty.wait(ctx, hold, [&] { return filled > 0; });
            if (!there) not_empty.wait(hold, [&] { return filled > 0; });
            --filled;
            not_full.notify_one();
            cancel();
          }
          if (random.below(2) == 0) {
            places.acquire();
          } else if (!places.try_acquire_for(std::chrono::microseconds(random.below(50)))) {
            continue;
          }
          EXPECT_LE(++in_places, 2);
          this_goroutine::yield();
          --in_places;
          places.release();
        }
      },
      [&] { EXPECT_EQ(filled, 0); });
}

}  // namespace
}  // namespace weft
