// preempt_test.cpp: goroutines that compute and never enter the runtime. Runs three times: as it
// is, with WEFT_DEBUG=asyncpreemptoff=1, where their processors are only taken from them, and with
// another signal.
#include "base/env.hpp"
#include "runtime_fixture.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::debug::stats;
using weft::test::grown;
using weft::test::procs_scope;
using weft::test::runtime_test;
using weft::test::scaled;
using steady = std::chrono::steady_clock;

bool pauses() { return !weft::base::env().async_preempt_off && !weft::base::sanitizer::is_thread; }

std::chrono::nanoseconds cpu_time() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

class preempt : public runtime_test {
 protected:
  // Computes until told to stop, without a call into anything.
  void start_hog(weft::wait_group& all, std::atomic<std::uint64_t>& turns) {
    all.go([this, &turns] {
      while (!stop_.load(std::memory_order_relaxed)) {
        turns.store(turns.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      }
    });
  }

  std::atomic<bool> stop_{false};
};

TEST_F(preempt, an_endless_loop_does_not_stop_the_others) {
  for (const int procs : {1, 2}) {
    const procs_scope scope(procs);
    stop_ = false;
    weft::wait_group all;
    std::vector<std::atomic<std::uint64_t>> turns(static_cast<std::size_t>(procs));
    for (auto& t : turns) start_hog(all, t);
    weft::wait_group others;
    std::atomic<int> done{0};
    for (int i = 0; i < 100; ++i) {
      others.go([&] {
        weft::this_goroutine::yield();
        ++done;
      });
    }
    others.wait();
    stop_ = true;
    all.wait();
    EXPECT_EQ(done, 100);
  }
}

TEST_F(preempt, hogs_share) {
  const procs_scope two(2);
  const auto before = stats();
  weft::wait_group all;
  std::vector<std::atomic<std::uint64_t>> turns(8);
  for (auto& t : turns) start_hog(all, t);
  weft::run([] { weft::this_goroutine::sleep_for(1s); });
  stop_ = true;
  all.wait();
  const auto [least, most] = std::minmax_element(turns.begin(), turns.end());
  EXPECT_GT(least->load(), 0u);
  EXPECT_LT(most->load(), 20 * least->load() + 1) << "from " << *least << " to " << *most;
  if (pauses()) {
    EXPECT_GE(grown(before, "pause.hog") + grown(before, "pause.unattached"), 10u);
  }
  if (weft::base::env().async_preempt_off) {
    EXPECT_EQ(grown(before, "pause.hog"), 0u);
    EXPECT_GE(grown(before, "detach.hog"), 1u);
  }
}

// Not more than max_procs() compute at a time, but for a moment.
TEST_F(preempt, hogs_use_no_more_cores_than_there_are_processors) {
  if (!pauses()) {
    GTEST_SKIP()
        << "hogs are not paused here (asyncpreemptoff=1, or TSan); one that only loses its "
           "processor computes on";
  }
  const procs_scope one(1);
  weft::wait_group all;
  std::vector<std::atomic<std::uint64_t>> turns(6);
  timespec t0{};
  timespec t1{};
  for (auto& t : turns) start_hog(all, t);
  weft::run([] { weft::this_goroutine::sleep_for(100ms); });
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
  const auto start = steady::now();
  weft::run([] { weft::this_goroutine::sleep_for(1s); });
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
  const std::chrono::duration<double> took = steady::now() - start;
  stop_ = true;
  all.wait();
  const double cpu = static_cast<double>(t1.tv_sec - t0.tv_sec) +
                     static_cast<double>(t1.tv_nsec - t0.tv_nsec) * 1e-9;
  EXPECT_LT(cpu, 1.3 * took.count());
}

// It asks for nothing but is asked at its next entry.
TEST_F(preempt, a_hog_that_uses_weft_yields) {
  const procs_scope one(1);
  const auto before = stats();
  weft::wait_group all;
  weft::chan<int> c(1);
  all.go([&] {
    while (!stop_.load(std::memory_order_relaxed)) (void)c.try_send(1), (void)c.try_recv();
  });
  all.go([&] {
    for (int i = 0; i < 5; ++i) weft::this_goroutine::yield();
    stop_ = true;
  });
  all.wait();
  EXPECT_GE(grown(before, "yield.done") + grown(before, "pause.hog") + grown(before, "detach.hog") +
                grown(before, "loan.made"),
            1u);
}

TEST_F(preempt, a_ticker_keeps_its_beat_beside_hogs) {
  for (const int procs : {1, 2}) {
    for (const int extra : {0, 4}) {
      const procs_scope scope(procs);
      const auto before = stats();
      stop_ = false;
      weft::wait_group all;
      std::vector<std::atomic<std::uint64_t>> turns(static_cast<std::size_t>(procs + extra));
      for (auto& t : turns) start_hog(all, t);
      std::vector<std::chrono::microseconds> late;
      weft::run([&] {
        for (int i = 0; i < 200; ++i) {
          const auto start = steady::now();
          weft::this_goroutine::sleep_for(1ms);
          late.push_back(
              std::chrono::duration_cast<std::chrono::microseconds>(steady::now() - start) - 1ms);
        }
      });
      stop_ = true;
      all.wait();
      std::sort(late.begin(), late.end());
      // On a quiet machine 20 us and some milliseconds.
      EXPECT_LT(late[100], 10ms * scaled(1, 4))
          << procs << " processors, " << extra << " more hogs";
      EXPECT_LT(late[197], 400ms * scaled(1, 4)) << procs << " processors, " << extra << " more";
      if (pauses()) {
        EXPECT_GE(grown(before, "loan.made"), 1u);
      }
    }
  }
}

// A crowd that is always ready does not starve the hogs, nor they the crowd.
TEST_F(preempt, hogs_and_others_each_get_a_share) {
  const procs_scope one(1);
  weft::wait_group all;
  std::vector<std::atomic<std::uint64_t>> turns(2);
  for (auto& t : turns) start_hog(all, t);
  std::atomic<std::uint64_t> yields{0};
  for (int i = 0; i < 4; ++i) {
    all.go([&] {
      while (!stop_.load(std::memory_order_relaxed)) {
        yields.fetch_add(1, std::memory_order_relaxed);
        weft::this_goroutine::yield();
      }
    });
  }
  weft::run([] { weft::this_goroutine::sleep_for(500ms); });
  const std::uint64_t crowd = yields.load();
  const std::uint64_t hogs = turns[0].load() + turns[1].load();
  weft::run([] { weft::this_goroutine::sleep_for(500ms); });
  EXPECT_GT(yields.load(), crowd);
  EXPECT_GT(turns[0].load() + turns[1].load(), hogs);
  stop_ = true;
  all.wait();
  EXPECT_GT(turns[0].load(), 0u);
  EXPECT_GT(turns[1].load(), 0u);
}

// Each paused hog keeps its thread: there may be hundreds, and all of them end.
TEST_F(preempt, hundreds_of_hogs_are_paused) {
  const procs_scope one(1);
  weft::wait_group all;
  std::atomic<int> done{0};
  constexpr int n = 300;
  const auto each = 12ms * scaled(1, 1);
  for (int i = 0; i < n; ++i) {
    all.go([&] {
      const auto end = cpu_time() + each;
      while (cpu_time() < end) {
      }
      ++done;
    });
  }
  weft::run([&] {
    while (done < n) weft::this_goroutine::sleep_for(5ms);
  });
  all.wait();
  EXPECT_EQ(done, n);
}

TEST_F(preempt, errno_is_left_alone) {
  const procs_scope one(1);
  weft::wait_group all;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 3; ++i) {
    all.go([&, i] {
      errno = 1000 + i;
      while (!stop_.load(std::memory_order_relaxed)) {
        if (errno != 1000 + i) ++wrong;
      }
    });
  }
  weft::run([] { weft::this_goroutine::sleep_for(300ms); });
  stop_ = true;
  all.wait();
  EXPECT_EQ(wrong, 0);
}

TEST_F(preempt, a_thread_that_blocks_the_signal_only_loses_its_processor) {
  const procs_scope one(1);
  const auto before = stats();
  weft::wait_group all;
  all.go([&] {
    weft::this_goroutine::lock_thread();
    sigset_t every;
    sigset_t mask;
    ::sigfillset(&every);
    ::pthread_sigmask(SIG_SETMASK, &every, &mask);
    while (!stop_.load(std::memory_order_relaxed)) {
    }
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    weft::this_goroutine::unlock_thread();
  });
  all.go([&] {
    for (int i = 0; i < 3; ++i) weft::this_goroutine::yield();
    stop_ = true;
  });
  all.wait();
  EXPECT_GE(grown(before, "detach.hog") + grown(before, "loan.made"), 1u);
}

// max_procs changes while hogs hold, lend and wait for processors.
TEST_F(preempt, processors_come_and_go_under_hogs) {
  const procs_scope scope(2);
  weft::wait_group all;
  std::vector<std::atomic<std::uint64_t>> turns(4);
  for (auto& t : turns) start_hog(all, t);
  weft::run([] {
    for (int i = 0; i < 60; ++i) {
      weft::max_procs(1 + i % 4);
      weft::this_goroutine::sleep_for(3ms);
    }
  });
  stop_ = true;
  all.wait();
  for (const auto& t : turns) EXPECT_GT(t.load(), 0u);
}

}  // namespace
