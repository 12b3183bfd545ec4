// Sleepers: never early, and never forgotten, whichever machine keeps the time.
#include "stress_fixture.hpp"
#include "stress_noise.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <thread>

namespace weft {
namespace {

using namespace std::chrono_literals;

class timers : public test::stress_test {
 protected:
  using nanoseconds = std::chrono::nanoseconds;

  // Sleeps and notes how it went.
  void sleep_and_note(nanoseconds d) {
    const auto due = test::steady::now() + d;
    this_goroutine::sleep_for(d);
    const nanoseconds late = test::steady::now() - due;
    // relaxed, both: read when all is over.
    if (late < 0ns) early_.fetch_add(1, std::memory_order_relaxed);
    std::int64_t worst = worst_late_.load(std::memory_order_relaxed);
    while (late.count() > worst &&
           !worst_late_.compare_exchange_weak(worst, late.count(), std::memory_order_relaxed)) {
    }
  }

  void expect_punctual(nanoseconds allowed) {
    EXPECT_EQ(early_.load(std::memory_order_relaxed), 0u);
    EXPECT_LE(nanoseconds(worst_late_.load(std::memory_order_relaxed)), allowed);
  }

 private:
  std::atomic<std::uint64_t> early_{0};
  std::atomic<std::int64_t> worst_late_{0};
};

// Hundreds of sleepers on every processor, some of which vanish: their timers stay behind and
// somebody else has to run them.
TEST_F(timers, sleepers_wake_in_time_while_processors_come_and_go) {
  const test::noise_meter noise;
  const test::procs_changer changer(chance(1), 8, 5ms);
  base::random seeds = chance(2);
  while (!time_is_up()) {
    run([&] {
      wait_group all;
      for (int i = 0; i < test::scaled(300, 60); ++i) {
        all.go([this, random = base::random(seeds.next())]() mutable {
          for (int n = 0; n < 5; ++n) {
            sleep_and_note(nanoseconds(random.below(4'000'000)));
            if (random.below(4) == 0) this_goroutine::yield();
          }
        });
      }
      all.wait();
    });
  }
  expect_punctual(noise.allowance());
}

// One sleeper, a process that is otherwise asleep, and a single change of max_procs somewhere
// around the moment it falls asleep: nothing else happens that could find a timer that was lost.
TEST_F(timers, a_lone_sleeper_is_not_forgotten_when_its_processor_goes) {
  const test::noise_meter noise;
  base::random random = chance();
  while (!time_is_up() && !HasFailure()) {
    max_procs(1 + static_cast<int>(random.below(4)));
    wait_group all;
    const int sleepers = 1 + static_cast<int>(random.below(3));
    for (int i = 0; i < sleepers; ++i) {
      all.go([this, random = base::random(random.next())]() mutable {
        if (random.below(2) == 0) test::compute_for(nanoseconds(random.below(100'000)));
        sleep_and_note(nanoseconds(random.below(2'000'000)));
      });
    }
    const std::uint32_t spin = random.below(4000);
    for (std::uint32_t i = 0; i < spin; ++i) detail::relax(0);
    if (random.below(4) != 0) max_procs(1 + static_cast<int>(random.below(4)));
    all.wait();
    expect_punctual(noise.allowance());
  }
}

// While the machine that keeps the time goes to sleep, the timer it keeps is taken away and a later
// one is armed: its promise must still hold.
TEST_F(timers, the_time_is_kept_while_timers_come_and_go) {
  const test::noise_meter noise;
  max_procs(4);
  base::random seeds = chance();
  while (!time_is_up() && !HasFailure()) {
    run([&] {
      wait_group all;
      for (int i = 0; i < 3; ++i) {
        all.go([this, random = base::random(seeds.next())]() mutable {
          for (int n = 0; n < 20; ++n) {
            // A wait with a deadline that is met long before it.
            const auto delay = nanoseconds(random.below(300'000));
            future<void> f = async([delay] { this_goroutine::sleep_for(delay); });
            const auto patience = nanoseconds(100'000 + random.below(400'000));
            while (f.wait_for(patience) != std::future_status::ready) {
            }
            sleep_and_note(nanoseconds(random.below(1'000'000)));
          }
        });
      }
      all.wait();
    });
    expect_punctual(noise.allowance());
  }
}

// A sleep that is over before it begins: a machine that fires timers finds the goroutine while it
// is still leaving its own machine. Two machines that find each other's goroutine must not wait for
// each other.
TEST_F(timers, sleeps_that_are_over_before_they_begin) {
  constexpr int procs[] = {1, 2, 3, 4};
  for (int part = 0; part < 4; ++part) {
    max_procs(procs[part]);
    base::random seeds = chance(static_cast<std::uint64_t>(part));
    do {
      run([&] {
        wait_group all;
        for (int i = 0; i < 4; ++i) {
          all.go([random = base::random(seeds.next())]() mutable {
            for (int n = 0; n < test::scaled(5000, 500); ++n) {
              this_goroutine::sleep_for(nanoseconds(1 + random.below(200)));
            }
          });
        }
        all.wait();
      });
    } while (!time_is_up(part + 1, 4));
  }
}

// A bound goroutine is woken by handing its thread the processor of the machine that kept the time;
// the other sleepers need another keeper, for it may compute as long as it likes.
TEST_F(timers, a_bound_goroutine_does_not_take_the_time_with_it) {
  const test::noise_meter noise;
  max_procs(3);
  base::random seeds = chance();
  while (!time_is_up() && !HasFailure()) {
    std::atomic<bool> slept{false};
    wait_group all;
    base::random random(seeds.next());
    const auto first = nanoseconds(random.below(1'000'000));
    const auto second = nanoseconds(random.below(2'000'000));
    all.go([this, first, &slept] {
      this_goroutine::lock_thread();
      sleep_and_note(first);
      // Never enters the runtime until the other is through, or has been given up.
      const auto end = test::steady::now() + 5s;
      while (!slept.load(std::memory_order_relaxed) && test::steady::now() < end) {
        std::this_thread::yield();
      }
      this_goroutine::unlock_thread();
    });
    all.go([this, second, &slept] {
      sleep_and_note(second);
      slept.store(true, std::memory_order_relaxed);  // nothing else is passed along
    });
    all.wait();
    expect_punctual(noise.allowance());
  }
}

}  // namespace
}  // namespace weft
