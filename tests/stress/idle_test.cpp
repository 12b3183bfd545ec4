// Bursts of work and total idleness in turn, to find lost wake-ups.
//
// A lost wake-up need not hang: a forgotten goroutine may be found a second later, when a machine
// looks for another reason. So each round is timed against how late the machine is anyway.
#include "stress_fixture.hpp"
#include "stress_noise.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

class idle : public test::stress_test {
 protected:
  // A round is timed, so its work must be next to nothing. To TSan a goroutine is a thread: a burst
  // of several hundred takes half a second there, as long as a lost wake-up might.
  static constexpr std::uint32_t burst_max = test::scaled(300, 20);

  // None, or anything up to 3 ms, often near the times for which a processor dozes.
  static std::chrono::nanoseconds gap(base::random& random) {
    constexpr std::uint32_t doze_ns[] = {50'000, 100'000, 200'000, 400'000, 800'000, 2'000'000};
    switch (random.below(4)) {
      case 0:
        return 0ns;
      case 1:
        return std::chrono::nanoseconds(random.below(3'000'000));
      default:
        return std::chrono::nanoseconds(doze_ns[random.below(6)] + random.below(30'000));
    }
  }

  // As exact as can be: sleeps for most of it and spins for the rest.
  static void wait_out(std::chrono::nanoseconds d) {
    const auto end = test::steady::now() + d;
    if (d > 300us) std::this_thread::sleep_for(d - 200us);
    while (test::steady::now() < end) {
    }
  }
};

// From outside: a plain thread starts goroutines on processors that sleep, doze, are about to do
// either or have just been woken.
TEST_F(idle, bursts_from_a_plain_thread_find_sleeping_processors) {
  const test::noise_meter noise;
  constexpr int procs[] = {1, 2, 4, 16};
  for (int part = 0; part < 4; ++part) {
    max_procs(procs[part]);
    base::random random = chance(static_cast<std::uint64_t>(part));
    do {
      wait_out(gap(random));
      const auto begin = test::steady::now();
      wait_group all;
      const std::uint32_t n = 1 + random.below(random.below(8) == 0 ? burst_max : 4);
      const std::uint32_t inner = random.below(3);
      for (std::uint32_t i = 0; i < n; ++i) {
        all.go([&all, inner] {
          for (std::uint32_t k = 0; k < inner; ++k) all.go([] { this_goroutine::yield(); });
        });
      }
      all.wait();
      ASSERT_LE(test::steady::now() - begin, noise.allowance());
    } while (!time_is_up(part + 1, 4));
  }
}

// From inside: a goroutine makes work and then computes until somebody else has done it. Nobody but
// a machine that it woke, or that was about to go to sleep, can do that.
TEST_F(idle, work_is_taken_from_a_goroutine_that_computes) {
  const test::noise_meter noise;
  constexpr int procs[] = {2, 3, 4, 16};
  for (int part = 0; part < 4; ++part) {
    max_procs(procs[part]);
    base::random random = chance(static_cast<std::uint64_t>(part));
    do {
      test::steady::duration took{};
      const auto pause = gap(random);
      const std::uint32_t n = 1 + random.below(random.below(8) == 0 ? burst_max : 4);
      run([&] {
        if (pause > 0ns) this_goroutine::sleep_for(pause);
        std::atomic<std::uint32_t> left{n};
        wait_group all;
        const auto begin = test::steady::now();
        for (std::uint32_t i = 0; i < n; ++i) {
          all.go([&left] { left.fetch_sub(1, std::memory_order_relaxed); });  // a count
        }
        // Its thread gives way, its processor does not.
        while (left.load(std::memory_order_relaxed) != 0 && test::steady::now() - begin < 10s) {
          std::this_thread::yield();
        }
        took = test::steady::now() - begin;
        all.wait();
      });
      ASSERT_LE(took, noise.allowance());
    } while (!time_is_up(part + 1, 4));
  }
}

// The global queue: a machine that takes a share of it and runs a goroutine that computes must not
// sit on the rest.
TEST_F(idle, nobody_sits_on_a_share_of_the_global_queue) {
  const test::noise_meter noise;
  max_procs(3);
  base::random random = chance();
  while (!time_is_up()) {
    wait_out(gap(random));
    constexpr std::uint32_t n = test::scaled(60, 20);
    std::atomic<std::uint32_t> left{n};
    wait_group all;
    const auto begin = test::steady::now();
    // Two of them compute until all the others have run; a third processor is there for those.
    std::atomic<int> hogs{0};
    for (std::uint32_t i = 0; i < n; ++i) {
      all.go([&] {
        left.fetch_sub(1, std::memory_order_relaxed);  // a count
        if (hogs.fetch_add(1, std::memory_order_relaxed) >= 2) return;
        while (left.load(std::memory_order_relaxed) != 0 && test::steady::now() - begin < 10s) {
          std::this_thread::yield();
        }
      });
    }
    all.wait();
    ASSERT_LE(test::steady::now() - begin, noise.allowance());
  }
}

// max_procs changes while everybody is asleep, and is called by goroutines, too: each call must
// come back, and what comes afterwards must find somebody awake.
TEST_F(idle, max_procs_returns_while_everybody_goes_to_sleep) {
  const test::noise_meter noise;
  base::random random = chance();
  while (!time_is_up()) {
    const auto begin = test::steady::now();
    wait_group all;
    const std::uint32_t n = 1 + random.below(6);
    for (std::uint32_t i = 0; i < n; ++i) {
      all.go([random = base::random(random.next())]() mutable {
        test::compute_for(std::chrono::nanoseconds(random.below(20'000)));
        if (random.below(4) == 0) max_procs(1 + static_cast<int>(random.below(6)));
      });
    }
    if (random.below(2) == 0) all.wait();
    for (std::uint32_t spin = random.below(2000); spin != 0; --spin) detail::relax(0);
    max_procs(1 + static_cast<int>(random.below(6)));
    all.wait();
    ASSERT_LE(test::steady::now() - begin, noise.allowance());
    if (random.below(4) == 0) wait_out(gap(random));
  }
}

}  // namespace
}  // namespace weft
