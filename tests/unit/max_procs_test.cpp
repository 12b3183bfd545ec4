// max_procs_test.cpp: how many goroutines run at a time, changed while they run; and what the
// number is when nobody sets it.
#include "base/cpu_limit.hpp"
#include "child_process.hpp"
#include "runtime_fixture.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <stdexcept>
#include <thread>

namespace {

using namespace std::chrono_literals;
using weft::test::child_options;
using weft::test::child_result;
using weft::test::eventually;
using weft::test::procs_scope;
using weft::test::run_program;
using weft::test::runtime_test;
using weft::test::scaled;

class max_procs : public runtime_test {};
class default_procs : public ::testing::Test {};

// The number set is the number read, and setting returns the one before: code that saves and
// restores it depends on both.
TEST_F(max_procs, reads_back_what_was_set) {
  const procs_scope scope(3);
  EXPECT_EQ(weft::max_procs(), 3);
  EXPECT_EQ(weft::max_procs(5), 3);
  EXPECT_EQ(weft::max_procs(1), 5);
  EXPECT_EQ(weft::max_procs(), 1);
  EXPECT_EQ(weft::max_procs(1), 1);
  weft::run([] {
    EXPECT_EQ(weft::max_procs(), 1);
    EXPECT_EQ(weft::max_procs(4), 1);
    EXPECT_EQ(weft::max_procs(), 4);
  });
}

// None, or fewer than none, cannot run anything; the number stays as it was.
TEST_F(max_procs, zero_and_negative_numbers_are_invalid) {
  const procs_scope scope(2);
  for (const int n : {0, -1, INT_MIN}) {
    EXPECT_THROW(weft::max_procs(n), std::invalid_argument);
    weft::run([n] { EXPECT_THROW(weft::max_procs(n), std::invalid_argument); });
  }
  EXPECT_EQ(weft::max_procs(), 2);
}

// More than there can be counts as the most there can be.
TEST_F(max_procs, more_than_1024_count_as_1024) {
  const procs_scope scope(1024);
  EXPECT_EQ(weft::max_procs(), 1024);
  weft::run([] {
    weft::wait_group all;
    std::atomic<int> n{0};
    for (int i = 0; i < 2000; ++i) {
      all.go([&] {
        weft::this_goroutine::yield();
        ++n;
      });
    }
    all.wait();
    EXPECT_EQ(n, 2000);
  });
  EXPECT_EQ(weft::max_procs(5000), 1024);
  EXPECT_EQ(weft::max_procs(INT_MAX), 1024);
  EXPECT_EQ(weft::max_procs(), 1024);
}

// Work that keeps entering the runtime in every way there is, until told to stop.
class busy_program {
 public:
  busy_program() {
    for (int i = 0; i < 8; ++i) {
      all_.go([this] {
        while (!stop_) {
          weft::this_goroutine::yield();
          ++steps_;
        }
      });
      all_.go([this] {
        while (!stop_) {
          weft::wait_group g;
          for (int k = 0; k < 5; ++k) g.go([this] { ++steps_; });
          g.wait();
        }
      });
      all_.go([this] {
        while (!stop_) {
          weft::this_goroutine::sleep_for(50us);
          ++steps_;
        }
      });
      all_.go([this] {
        while (!stop_) {
          if (weft::async([] { return 1; }).get() == 1) ++steps_;
        }
      });
    }
  }
  busy_program(const busy_program&) = delete;
  busy_program& operator=(const busy_program&) = delete;
  ~busy_program() {
    stop_ = true;
    all_.wait();
  }
  std::uint64_t steps() const { return steps_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> steps_{0};
  weft::wait_group all_;
};

// Containers change their share while the program runs. Nothing may stop or be lost at any step.
TEST_F(max_procs, goes_up_and_down_while_goroutines_run) {
  const procs_scope scope(4);
  weft::run([] {
    busy_program program;
    for (int i = 0; i < scaled(100, 30); ++i) {
      const int n = 1 + i * 7 % 16;
      weft::max_procs(n);
      ASSERT_EQ(weft::max_procs(), n);
      const std::uint64_t then = program.steps();
      ASSERT_TRUE(eventually([&] { return program.steps() > then + 20; }));
    }
  });
}

// As above, from a plain thread, which holds no processor itself.
TEST_F(max_procs, is_changed_by_plain_threads) {
  const procs_scope scope(4);
  weft::run([] {
    busy_program program;
    std::atomic<bool> finished{false};
    std::thread changer([&] {
      for (int i = 0; i < scaled(100, 30); ++i) weft::max_procs(1 + i * 5 % 16);
      finished = true;
    });
    EXPECT_TRUE(eventually([&] { return finished.load(); }));
    changer.join();
    const std::uint64_t then = program.steps();
    EXPECT_TRUE(eventually([&] { return program.steps() > then + 20; }));
  });
}

// Several at once: each change is whole, and the last one counts.
TEST_F(max_procs, is_changed_by_several_at_once) {
  const procs_scope scope(4);
  weft::run([] {
    busy_program program;
    weft::wait_group all;
    for (int worker = 0; worker < 4; ++worker) {
      all.go([worker] {
        for (int i = 0; i < scaled(100, 15); ++i) {
          const int before = weft::max_procs(1 + (i + worker * 3) % 8);
          ASSERT_GE(before, 1);
          ASSERT_LE(before, 8);
          weft::this_goroutine::yield();
        }
      });
    }
    all.wait();
    const std::uint64_t then = program.steps();
    EXPECT_TRUE(eventually([&] { return program.steps() > then + 20; }));
  });
}

// The goroutine that asks may stand on the very processor that goes.
TEST_F(max_procs, the_caller_may_lose_its_own_processor) {
  const procs_scope scope(8);
  weft::run([] {
    weft::wait_group all;
    std::atomic<int> done{0};
    for (int i = 0; i < 32; ++i) {
      all.go([&] {
        for (int turn = 0; turn < scaled(20, 5); ++turn) {
          weft::max_procs(8);
          for (int k = 0; k < 20; ++k) weft::this_goroutine::yield();
          weft::max_procs(1);
          weft::go([&] { ++done; });  // the first entry after it
        }
      });
    }
    all.wait();
    EXPECT_TRUE(eventually([&] { return done == 32 * scaled(20, 5); }));
  });
}

// Goroutines that compute cannot be asked to let go; max_procs must not wait for them, and what is
// queued behind them must move.
TEST_F(max_procs, shrinks_while_goroutines_compute) {
  const procs_scope scope(6);
  weft::run([] {
    std::atomic<bool> stop{false};
    std::atomic<int> computing{0};
    weft::wait_group all;
    for (int i = 0; i < 3; ++i) {
      all.go([&] {
        ++computing;
        // The one processor that stays may be this goroutine's; then it has to end by itself, or to
        // be preempted, before the others have their turn.
        const auto patience = std::chrono::steady_clock::now() + 2s;
        while (!stop && std::chrono::steady_clock::now() < patience) {
        }
      });
    }
    // A processor each: there are six, and this goroutine needs one as well.
    ASSERT_TRUE(eventually([&] { return computing == 3; }));
    const auto start = std::chrono::steady_clock::now();
    weft::max_procs(1);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
    EXPECT_EQ(weft::max_procs(), 1);
    // The one that is left runs everything else, this goroutine included.
    weft::wait_group others;
    std::atomic<int> ran{0};
    for (int i = 0; i < 100; ++i) {
      others.go([&] {
        weft::this_goroutine::yield();
        ++ran;
      });
    }
    EXPECT_TRUE(eventually([&] { return ran == 100; }));
    others.wait();
    stop = true;
    all.wait();
  });
}

// Sleepers of a processor that is taken away are woken by others.
TEST_F(max_procs, timers_of_retired_processors_fire) {
  const procs_scope scope(8);
  weft::run([] {
    weft::wait_group all;
    std::atomic<int> woke{0};
    constexpr std::size_t n = 200;
    for (std::size_t i = 0; i < n; ++i) {
      all.go([&, i] {
        for (std::size_t k = 0; k < i % 7; ++k) weft::this_goroutine::yield();
        weft::this_goroutine::sleep_for(20ms);
        ++woke;
      });
    }
    EXPECT_TRUE(weft::test::eventually([&] {
      return weft::test::count_waiting(weft::detail::wait_reason::sleep) >= n || woke > 0;
    }));
    weft::max_procs(1);
    all.wait();
    EXPECT_EQ(woke, static_cast<int>(n));
  });
}

// But for one whose processor was lent or taken, here because the kernel leaves its thread aside
// for long: it is in user code meanwhile, as far as this can tell. On a quiet machine there is
// none.
TEST_F(max_procs, no_more_goroutines_run_at_once_than_it_says) {
  for (const int procs : {1, 2, 3}) {
    const procs_scope from(8);
    weft::run([procs] {
      constexpr std::size_t crowd = 16;
      std::atomic<bool> stop{false};
      std::atomic<bool> watching{false};
      std::atomic<int> now{0};
      std::atomic<int> most{0};
      std::atomic<int> turns[crowd] = {};
      weft::wait_group all;
      for (std::atomic<int>& mine : turns) {
        all.go([&] {
          while (!stop) {
            // Between two entries into the runtime a goroutine holds its processor.
            const bool counts = watching;  // before it looks, or it might tell of older times
            const int here = now.fetch_add(1) + 1;
            if (counts) {
              int seen = most;
              while (here > seen && !most.compare_exchange_weak(seen, here)) {
              }
            }
            for (int k = 0; k < 200; ++k) asm volatile("" ::: "memory");
            now.fetch_sub(1);
            ++mine;
            weft::this_goroutine::yield();
          }
        });
      }
      const auto all_have_had = [&](int n) {
        int before[crowd];
        std::copy(std::begin(turns), std::end(turns), std::begin(before));
        return eventually([&] {
          for (std::size_t i = 0; i < crowd; ++i) {
            if (turns[i] < before[i] + n) return false;
          }
          return true;
        });
      };
      ASSERT_TRUE(all_have_had(10));
      weft::max_procs(procs);
      // It is settled when everyone has been through the runtime: a goroutine that computes keeps
      // its thread, and the kernel may leave that aside for a while.
      ASSERT_TRUE(all_have_had(2));
      watching = true;
      ASSERT_TRUE(all_have_had(scaled(1'000, 100)));
      stop = true;
      all.wait();
      EXPECT_LE(most, procs + 2);  // of 16 that would run on 8
      EXPECT_GE(most, 1);
    });
  }
}

// More processors must be of use: as many goroutines run at once as there are.
TEST_F(max_procs, as_many_goroutines_run_at_once_as_it_says) {
  const procs_scope scope(6);
  weft::run([] {
    weft::wait_group all;
    std::atomic<int> here{0};
    std::atomic<int> met{0};
    for (int i = 0; i < 6; ++i) {
      all.go([&] {
        ++here;
        // All six meet without entering the runtime, so each needs a processor of its own.
        const auto patience = std::chrono::steady_clock::now() + 30s;
        while (here < 6 && std::chrono::steady_clock::now() < patience) {
        }
        if (here == 6) ++met;
      });
    }
    all.wait();
    EXPECT_EQ(met, 6);
  });
}

// ------------------------------------------------------------------------- the number nobody set

// Returns: what the program says max_procs() is.
int procs_of(const child_result& r) { return r.output.empty() ? -1 : std::stoi(r.output); }

// taskset and cpusets bound it: more processors than CPUs would only get in each other's way.
TEST_F(default_procs, follows_the_affinity_mask) {
  child_options one_cpu;
  one_cpu.before_exec = [] {
    cpu_set_t mask;
    ::sched_getaffinity(0, sizeof mask, &mask);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ::sched_setaffinity(0, sizeof mask, &mask);
  };
  const child_result bound = run_program("print_settings", one_cpu);
  EXPECT_EQ(bound.status, 0) << bound;
  EXPECT_EQ(procs_of(bound), 1) << bound;

  const child_result free = run_program("print_settings");
  EXPECT_EQ(procs_of(free), weft::base::default_procs()) << free;
  EXPECT_EQ(free.errors, "");
}

// WEFT_MAXPROCS wins over what the machine has.
TEST_F(default_procs, the_environment_sets_it) {
  for (const char* const n : {"1", "3", "17"}) {
    const child_result r = run_program("print_settings", {.environment = {{"WEFT_MAXPROCS", n}}});
    EXPECT_EQ(procs_of(r), std::stoi(n)) << r;
    EXPECT_EQ(r.errors, "");
  }
}

// A typing error in the environment must not keep a program from starting, nor go unnoticed.
TEST_F(default_procs, nonsense_in_the_environment_is_told_in_one_line) {
  for (const char* const n : {"many", "0", "-3", "2.5", "99999999999999999999"}) {
    const child_result r = run_program("print_settings", {.environment = {{"WEFT_MAXPROCS", n}}});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(procs_of(r), weft::base::default_procs()) << r;
    EXPECT_TRUE(r.says("WEFT_MAXPROCS")) << r;
    EXPECT_TRUE(r.says(n)) << r;
    EXPECT_EQ(std::count(r.errors.begin(), r.errors.end(), '\n'), 1) << r;
  }
}

}  // namespace
