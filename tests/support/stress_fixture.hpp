// stress_fixture.hpp: what every stress test has: a seed, a time to run for, machines that are
// stopped at random (stress_jitter.hpp), a watchdog, and a look at the scheduler's books when it is
// over.
//
// The seed comes from WEFT_TEST_SEED or from the kernel, and is printed with the line that replays
// the test. It fixes what the test does, not how the kernel schedules its threads. How long each
// test runs comes from WEFT_STRESS_SECONDS or is a matter of the test, some seconds.
//
// The books: once nothing runs, every processor below max_procs() is in the idle list exactly once,
// the others are retired, nobody searches, every queue is empty and no timer is armed. A token
// given twice, a processor lost or a count that drifts shows here even if the test got away with
// it.
#pragma once

#include "base/random.hpp"
#include "eventually.hpp"
#include "sched/scheduler.hpp"
#include "stress_dump.hpp"
#include "stress_jitter.hpp"
#include "stress_watchdog.hpp"

#include <weft/go.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>

namespace weft::test {

using steady = std::chrono::steady_clock;

// Returns: what is wrong with the scheduler's books, or nothing. All is well only while nothing
// runs; ask again if something may still be on its way to sleep.
inline std::string fault_in_books() {
  sched::scheduler& s = sched::the_scheduler;
  const std::lock_guard hold(s.lock);
  const std::uint32_t procs = s.procs.load(std::memory_order_relaxed);
  const std::uint32_t made = s.procs_made.load(std::memory_order_relaxed);
  const auto name = [](const sched::processor* p) {
    return "processor " + std::to_string(p->index);
  };
  std::uint32_t listed = 0;
  std::uint32_t listening = 0;
  for (const sched::processor* p = s.idle_processors.front(); p != nullptr;
       p = sched::idle_processor_list::after(p)) {
    if (++listed > made) return "the idle list is a circle";
    if (p->idle == sched::processor::idleness::busy) return name(p) + " is listed and busy";
    if (p->index >= procs) return name(p) + " is listed beyond max_procs";
    if (p->idle == sched::processor::idleness::listening) ++listening;
    const sched::machine* const m = p->holder.load(std::memory_order_relaxed);
    if (m != nullptr && m->p != p) return name(p) + "'s holder holds another";
    if (m != nullptr && m->is_spare) return name(p) + "'s holder is a spare machine";
  }
  if (listed != procs) {
    return std::to_string(listed) + " of " + std::to_string(procs) + " processors are idle";
  }
  if (s.idle_count.load(std::memory_order_relaxed) != listed) return "idle_count is off";
  if (!s.starting.empty()) return "a processor waits for a thread";
  if (s.idle.listening_hint() != listening) return "the count of listeners is off";
  if (s.idle.searching_hint() != 0) return "somebody searches";
  std::uint32_t spare = 0;
  for (const sched::machine* m = s.spare.front(); m != nullptr; m = sched::machine_list::after(m)) {
    if (++spare > s.spare.size()) return "spare_count is off";
    if (m->p != nullptr) return "a spare machine has a processor";
  }
  if (spare != s.spare.size()) return "spare_count is off";
  for (std::uint32_t i = 0; i < made; ++i) {
    const sched::processor* const p = s.processors[i].load(std::memory_order_relaxed);
    if (i >= procs && !p->retired) return name(p) + " is not retired";
    if (i < procs && p->retired) return name(p) + " is retired";
    if (p->next.load(std::memory_order_relaxed) != nullptr || p->ready.look_hint().size() != 0 ||
        p->fresh.look_hint().size() != 0 || p->woken.look_hint().size() != 0) {
      return name(p) + " has work";
    }
    if (p->timers.earliest_hint() != base::never) return name(p) + " has a timer";
  }
  if (s.paused_count.load(std::memory_order_relaxed) != 0) return "a machine is paused";
  if (s.global.size_hint() != 0) return "the global queue has work";
  return {};
}

// Returns: the number in that environment variable, or 0.
inline std::uint64_t number_in_environment(const char* name) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 0;
}

// Changes max_procs under whatever runs, for as long as it lives.
class procs_changer {
 public:
  // Numbers from 1 to `most`; pauses of up to `pause_max`.
  procs_changer(base::random chance, int most, std::chrono::microseconds pause_max)
      : thread_([this, chance, most, pause_max] { change(chance, most, pause_max); }) {}
  procs_changer(const procs_changer&) = delete;
  procs_changer& operator=(const procs_changer&) = delete;
  ~procs_changer() {
    over_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

 private:
  void change(base::random chance, int most, std::chrono::microseconds pause_max) {
    while (!over_.load(std::memory_order_relaxed)) {
      max_procs(1 + static_cast<int>(chance.below(static_cast<std::uint32_t>(most))));
      const std::uint32_t pause = chance.below(static_cast<std::uint32_t>(pause_max.count()) + 1);
      // The kernel's shortest sleep is 50 us, so shorter pauses are left out.
      if (pause > 50) std::this_thread::sleep_for(std::chrono::microseconds(pause));
    }
  }

  std::atomic<bool> over_{false};  // relaxed: nothing else is passed along
  std::thread thread_;
};

class stress_test : public ::testing::Test {
 protected:
  enum class shaking : std::uint8_t { on, off };

  // For tests that cannot bear signals but the runtime's own: with shaking::off there is no jitter.
  explicit stress_test(shaking s = shaking::on,
                       std::chrono::milliseconds run_time = std::chrono::milliseconds(2500))
      : shaking_(s), run_time_(run_time) {
    if (const std::uint64_t given = number_in_environment("WEFT_STRESS_SECONDS")) {
      run_time_ = std::chrono::seconds(given);
    }
  }

  void SetUp() override {
    const char* const given = std::getenv("WEFT_TEST_SEED");
    seed_ = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    const auto* const info = ::testing::UnitTest::GetInstance()->current_test_info();
    replay_ = "WEFT_TEST_SEED=" + std::to_string(seed_) + " " +
              ::testing::internal::GetArgvs().front() +
              " --gtest_filter=" + info->test_suite_name() + "." + info->name();
    // Now, and not only on failure: a process that dies says nothing afterwards.
    std::printf("%s\n", replay_.c_str());
    std::fflush(stdout);
    dog_ = std::make_unique<watchdog>(
        limit + std::chrono::duration_cast<std::chrono::seconds>(run_time_), replay_);
    procs_before_ = max_procs();
    alive_before_ = num_goroutine();
    if (shaking_ == shaking::on) jitter_ = std::make_unique<jitter>(chance(~std::uint64_t{0}));
    began_ = steady::now();
  }

  void TearDown() override {
    jitter_.reset();
    max_procs(procs_before_);
    expect_quiet();
    if (HasFailure()) std::printf("to replay it: %s\n", replay_.c_str());
    dog_.reset();
  }

  // Everything has ended, and the scheduler's books balance.
  void expect_quiet() {
    EXPECT_TRUE(patiently([this] { return num_goroutine() == alive_before_; }))
        << num_goroutine() << " goroutines are left, and there were " << alive_before_;
    std::string fault;
    const bool balanced = patiently([&fault] {
      fault = fault_in_books();
      return fault.empty();
    });
    EXPECT_TRUE(balanced) << fault;
    if (!balanced) scheduler_dump::print();
  }

  // The test's own random numbers. Generator `which` is the same in every run with this seed.
  base::random chance(std::uint64_t which = 0) const {
    return base::random(base::random(seed_ + which * 0x9e3779b97f4a7c15u).next());
  }

  // Calls round(random) again and again, for a quarter of the time each on 1, 2, 8 and a changing
  // number of processors.
  template <class F>
  void on_all_processors(F round) {
    constexpr int procs[] = {1, 2, 8, 8};
    for (int part = 0; part < 4; ++part) {
      max_procs(procs[part]);
      std::unique_ptr<procs_changer> changer;
      if (part == 3) {
        changer = std::make_unique<procs_changer>(chance(1), 16, std::chrono::milliseconds(1));
      }
      base::random random = chance(2 + static_cast<std::uint64_t>(part));
      do round(random);
      while (!time_is_up(part + 1, 4) && !HasFailure());
    }
  }

  // Whether the test has run for long enough; `share` divides its time among several parts.
  bool time_is_up(int part = 1, int parts = 1) const {
    return steady::now() - began_ >= run_time_ * part / parts;
  }

  std::chrono::milliseconds run_time() const { return run_time_; }
  // Before SetUp, which tells the watchdog.
  void set_run_time(std::chrono::milliseconds t) { run_time_ = t; }

 private:
  // A noisy machine may stand still for seconds; only a hang takes this long.
  static constexpr std::chrono::seconds limit{slow_build ? 100 : 60};

  // From a plain thread, which must not help goroutines along: it just looks now and then.
  template <class Condition>
  static bool patiently(Condition condition) {
    const auto deadline = steady::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (steady::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  const shaking shaking_;
  std::chrono::milliseconds run_time_;
  std::uint64_t seed_ = 0;
  std::string replay_;
  std::unique_ptr<watchdog> dog_;
  std::unique_ptr<jitter> jitter_;
  int procs_before_ = 0;
  std::size_t alive_before_ = 0;
  steady::time_point began_;
};

// Computes for about that long without entering the runtime.
inline void compute_for(std::chrono::nanoseconds d) {
  const auto end = steady::now() + d;
  while (steady::now() < end) {
  }
}

}  // namespace weft::test
