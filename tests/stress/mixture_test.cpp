// Everything at once: goroutines of every kind, plain threads that start and wake them, threads
// that end with their goroutines, and processors that come and go.
#include "stress_fixture.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <thread>
#include <unistd.h>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

[[gnu::noinline]] pid_t thread_now() { return ::gettid(); }

class mixture : public test::stress_test {
 protected:
  // Lives for a random time in random ways. What it starts is counted in `all`.
  void live(wait_group& all, base::random random, int depth) {
    const std::uint32_t steps = 1 + random.below(6);
    bool bound = false;
    for (std::uint32_t i = 0; i < steps; ++i) {
      switch (random.below(12)) {
        case 0:
        case 1:
          this_goroutine::yield();
          break;
        case 2:
        case 3:
          if (depth > 0) start(all, base::random(random.next()), depth - 1);
          break;
        case 4:
          this_goroutine::sleep_for(std::chrono::nanoseconds(random.below(400'000)));
          break;
        case 5:
          test::compute_for(std::chrono::nanoseconds(random.below(60'000)));
          break;
        case 6: {
          const std::uint64_t value = random.next();
          future<std::uint64_t> f = async([value] {
            this_goroutine::yield();
            return value + 1;
          });
          if (random.below(4) != 0 && f.get() != value + 1) note_fault();
          break;  // or the future is dropped
        }
        case 7: {
          wait_group inner;
          const std::uint32_t n = random.below(8);
          for (std::uint32_t k = 0; k < n; ++k) inner.go([] { this_goroutine::yield(); });
          inner.wait();
          break;
        }
        case 8:
          stay_on_thread(base::random(random.next()));
          if (is_bound() != bound) note_fault();
          break;
        case 9:
          if (random.below(4) == 0) {
            this_goroutine::lock_thread();
            this_goroutine::lock_thread();
            this_goroutine::unlock_thread();  // ends bound, and its thread with it
            bound = true;
          }
          break;
        case 10:
          if (random.below(3) == 0) this_goroutine::exit();
          break;
        case 11:
          if (random.below(16) == 0) max_procs(1 + static_cast<int>(random.below(8)));
          break;
      }
    }
  }

  void start(wait_group& all, base::random random, int depth) {
    if (random.below(8) == 0) {
      all.add(1);
      go({.stack_size = std::size_t{64 << 10} << random.below(4)}, [this, &all, random, depth] {
        struct finisher {
          wait_group* all;
          ~finisher() { all->done(); }
        };
        const finisher last{&all};
        live(all, random, depth);
      });
    } else {
      all.go([this, &all, random, depth] { live(all, random, depth); });
    }
  }

  static bool is_bound() { return sched::this_machine()->g->how == sched::mode::bound; }

  // Bound to its thread it must find itself there after every wait.
  void stay_on_thread(base::random random) {
    this_goroutine::lock_thread();
    const pid_t here = thread_now();
    for (std::uint32_t n = random.below(6); n != 0; --n) {
      switch (random.below(4)) {
        case 0:
          this_goroutine::yield();
          break;
        case 1:
          this_goroutine::sleep_for(std::chrono::nanoseconds(random.below(100'000)));
          break;
        case 2: {
          wait_group inner;
          inner.go([] {});
          inner.wait();
          break;
        }
        case 3:
          async([] { this_goroutine::yield(); }).get();
          break;
      }
      if (thread_now() != here) note_fault();
    }
    this_goroutine::unlock_thread();
  }

  void note_fault() { faults_.fetch_add(1, std::memory_order_relaxed); }  // a count
  std::uint64_t faults() const { return faults_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> faults_{0};
};

// If the parts work and the whole does not, it shows here: a goroutine lost or run twice, a
// processor held by two, a thread that waits for ever.
TEST_F(mixture, everything_at_once_comes_to_an_end) {
  base::random random = chance(1);
  const test::procs_changer changer(chance(2), 8, 2ms);
  while (!time_is_up() && !HasFailure()) {
    const std::uint32_t threads = 1 + random.below(3);
    std::vector<std::thread> starters;
    wait_group all;
    for (std::uint32_t t = 0; t < threads; ++t) {
      starters.emplace_back([this, &all, random = base::random(random.next())]() mutable {
        const std::uint32_t n = random.below(test::scaled(300, 60));
        for (std::uint32_t i = 0; i < n; ++i) {
          start(all, base::random(random.next()), 3);
          if (random.below(16) == 0) std::this_thread::yield();
        }
      });
    }
    for (auto& t : starters) t.join();
    all.wait();
    EXPECT_EQ(faults(), 0u);
  }
}

// Threads that end with their goroutines keep the thread that makes threads busy, while processors
// that wait for one of them are taken out of circulation.
TEST_F(mixture, threads_start_and_end_while_processors_come_and_go) {
  base::random random = chance(1);
  const test::procs_changer changer(chance(2), 6, 300us);
  while (!time_is_up()) {
    wait_group all;
    for (int i = 0; i < test::scaled(60, 20); ++i) {
      all.go([&all, random = base::random(random.next())]() mutable {
        if (random.below(3) == 0) this_goroutine::lock_thread();  // and never unlocks
        for (std::uint32_t n = random.below(4); n != 0; --n) {
          all.go([] { this_goroutine::yield(); });
          this_goroutine::yield();
        }
        if (random.below(4) == 0) this_goroutine::exit();
      });
    }
    all.wait();
  }
}

// Bound goroutines and free ones wake each other, with pauses in which everybody goes to sleep: a
// processor handed to a thread that has not let go of its own yet, or a wake-up too many, shows in
// the books.
TEST_F(mixture, bound_goroutines_come_and_go_between_idle_times) {
  base::random random = chance();
  for (int round = 0; !time_is_up() && !HasFailure(); ++round) {
    if (round % 16 == 0) max_procs(2 + static_cast<int>(random.below(4)));
    wait_group all;
    const std::uint32_t n = 1 + random.below(4);
    for (std::uint32_t i = 0; i < n; ++i) {
      all.go([this, random = base::random(random.next())] { stay_on_thread(random); });
    }
    all.wait();
    EXPECT_EQ(faults(), 0u);
    const auto pause = std::chrono::microseconds(random.below(400));
    if (pause > 50us) std::this_thread::sleep_for(pause);
    if (round % 64 == 0) expect_quiet();
  }
}

}  // namespace
}  // namespace weft
