// timers_test.cpp: the heap of timers that each processor has.
#include "sched/timers.hpp"

#include "base/sanitizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using weft::base::never;
using weft::sched::timer;
using weft::sched::timer_heap;

std::vector<timer*>* fired = nullptr;

void note_fired(timer* t) noexcept { fired->push_back(t); }

// With as much memory as it takes, with too little, and with none.
class timers : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override { fired = &fired_; }

  timer& make() {
    made_.push_back(std::make_unique<timer>());
    made_.back()->fire = &note_fired;
    return *made_.back();
  }

  timer_heap heap_{GetParam()};
  std::vector<std::unique_ptr<timer>> made_;
  std::vector<timer*> fired_;
};

// Nothing fires early, and what is due fires, at its very nanosecond.
TEST_P(timers, fire_when_due_and_not_before) {
  timer& t = make();
  EXPECT_EQ(heap_.earliest_hint(), never);
  heap_.arm(t, 100);
  EXPECT_EQ(heap_.earliest_hint(), 100);
  EXPECT_EQ(heap_.run(99), 0u);
  EXPECT_TRUE(fired_.empty());
  EXPECT_EQ(heap_.run(100), 1u);
  EXPECT_EQ(fired_, std::vector<timer*>{&t});
  EXPECT_EQ(heap_.earliest_hint(), never);
  EXPECT_EQ(heap_.run(1000), 0u) << "once";
}

// The timer that has waited longest fires first.
TEST_P(timers, fire_in_the_order_of_their_times) {
  std::mt19937 random(1);
  constexpr std::size_t n = 5'000;  // several growths of the heap
  for (std::size_t i = 0; i < n; ++i) heap_.arm(make(), random() % 1'000);
  EXPECT_EQ(heap_.run(2'000), n);
  ASSERT_EQ(fired_.size(), n);
  EXPECT_TRUE(std::is_sorted(fired_.begin(), fired_.end(),
                             [](timer* a, timer* b) { return a->when_ns < b->when_ns; }));
}

// A disarmed timer's memory goes at once; firing it later would be a use after free.
TEST_P(timers, disarmed_ones_do_not_fire) {
  timer& a = make();
  timer& b = make();
  timer& c = make();
  heap_.arm(a, 10);
  heap_.arm(b, 20);
  heap_.arm(c, 30);
  EXPECT_TRUE(timer_heap::disarm(a));
  EXPECT_EQ(heap_.earliest_hint(), 20) << "idle machines sleep until that";
  EXPECT_FALSE(timer_heap::disarm(a)) << "it is not armed any more";
  EXPECT_EQ(heap_.run(25), 1u);
  EXPECT_FALSE(timer_heap::disarm(b)) << "it has fired";
  EXPECT_TRUE(timer_heap::disarm(c));
  EXPECT_EQ(heap_.earliest_hint(), never);
  EXPECT_EQ(fired_, std::vector<timer*>{&b});
  timer never_armed;
  EXPECT_FALSE(timer_heap::disarm(never_armed));
}

// A timer may be used again after it fired or was disarmed.
TEST_P(timers, are_armed_again) {
  timer& t = make();
  for (std::int64_t i = 1; i <= 10; ++i) {
    heap_.arm(t, i);
    if (i % 2 == 0) {
      EXPECT_TRUE(timer_heap::disarm(t));
    }
    heap_.run(i);
  }
  EXPECT_EQ(fired_.size(), 5u);
}

// The end of time and the past are times like others.
TEST_P(timers, take_any_time) {
  timer& past = make();
  timer& far = make();
  heap_.arm(far, never - 1);
  heap_.arm(past, -5);
  EXPECT_EQ(heap_.run(0), 1u);
  EXPECT_EQ(fired_, std::vector<timer*>{&past});
  EXPECT_EQ(heap_.earliest_hint(), never - 1);
  EXPECT_TRUE(timer_heap::disarm(far));
}

// Random arming, disarming and running against a plain list.
TEST_P(timers, behave_as_a_sorted_list) {
  std::mt19937 random(7);
  std::vector<timer*> armed;
  std::int64_t now = 0;
  for (int step = 0; step < 20'000; ++step) {
    switch (random() % 4) {
      case 0:
      case 1: {
        timer& t = make();
        heap_.arm(t, now + static_cast<std::int64_t>(random() % 500));
        armed.push_back(&t);
        break;
      }
      case 2: {
        if (armed.empty()) break;
        const std::size_t i = random() % armed.size();
        ASSERT_TRUE(timer_heap::disarm(*armed[i]));
        armed.erase(armed.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
      case 3: {
        now += static_cast<std::int64_t>(random() % 50);
        fired_.clear();
        const std::size_t n = heap_.run(now);
        const auto due =
            std::partition(armed.begin(), armed.end(), [&](timer* t) { return t->when_ns > now; });
        ASSERT_EQ(n, static_cast<std::size_t>(armed.end() - due));
        ASSERT_EQ(fired_.size(), n);
        for (auto it = due; it != armed.end(); ++it) {
          ASSERT_NE(std::find(fired_.begin(), fired_.end(), *it), fired_.end());
        }
        armed.erase(due, armed.end());
        break;
      }
    }
    std::int64_t earliest = never;
    for (timer* const t : armed) earliest = std::min(earliest, t->when_ns);
    ASSERT_EQ(heap_.earliest_hint(), earliest);
  }
  for (timer* const t : armed) timer_heap::disarm(*t);
}

// disarm returns only when the timer is neither armed nor firing: its owner's stack frame goes
// next.
TEST_P(timers, disarm_waits_for_a_timer_that_fires) {
  struct owned : timer {
    std::atomic<int> fires{0};
    std::atomic<bool> dead{false};
  };
  static std::atomic<int> late;
  late = 0;
  timer_heap heap(GetParam());
  std::atomic<bool> stop{false};
  std::thread runner([&] {
    while (!stop) heap.run(100);
  });
  for (int i = 0; i < 20'000; ++i) {
    owned t;
    t.fire = [](timer* x) noexcept {
      auto* const self = static_cast<owned*>(x);
      ++self->fires;
      if (self->dead) ++late;
    };
    heap.arm(t, 50);
    const bool disarmed = timer_heap::disarm(t);
    const int fires = t.fires;
    t.dead = true;
    ASSERT_EQ(fires, disarmed ? 0 : 1);
  }
  stop = true;
  runner.join();
  EXPECT_EQ(late, 0);
}

INSTANTIATE_TEST_SUITE_P(any_memory, timers, ::testing::Values(SIZE_MAX, 256, 0));

// How much of the process is in memory.
std::size_t resident_bytes() {
  std::size_t all = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// A burst of sleepers would cost the process its memory for good.
TEST(timer_memory, is_given_back_when_the_heap_becomes_small) {
  if (WEFT_TSAN) GTEST_SKIP() << "its shadow memory hides the difference";
  constexpr std::size_t n = 300'000;
  constexpr std::size_t mib = std::size_t{1} << 20;
  std::vector<timer> all(n);
  std::vector<timer*> order;
  for (timer& t : all) {
    t.fire = [](timer*) noexcept {};
    order.push_back(&t);
  }
  std::mt19937 random(3);
  std::shuffle(order.begin(), order.end(), random);
  for (const bool fires : {false, true}) {
    SCOPED_TRACE(fires);
    timer_heap heap;
    const std::size_t before = resident_bytes();
    for (std::size_t i = 0; i < n; ++i) heap.arm(all[i], static_cast<std::int64_t>(random() % n));
    EXPECT_GT(resident_bytes(), before + 4 * mib);
    timer last;
    last.fire = all[0].fire;
    heap.arm(last, n);
    if (fires) {
      EXPECT_EQ(heap.run(n - 1), n);
    } else {
      for (timer* t : order) EXPECT_TRUE(timer_heap::disarm(*t));
    }
    EXPECT_LT(resident_bytes(), before + mib);
    // It is as good as new.
    for (std::size_t i = 0; i < n; ++i) heap.arm(all[i], static_cast<std::int64_t>(random() % n));
    EXPECT_EQ(heap.run(n), n + 1);
    EXPECT_EQ(heap.earliest_hint(), never);
    heap.clear();
  }
}

}  // namespace
