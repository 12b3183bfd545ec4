// runtime_fixture.hpp: a test in a process with a runtime: leaves no goroutine behind and the
// number of processors as it was.
#pragma once

#include "eventually.hpp"
#include "sched/scheduler.hpp"

#include <weft/debug.hpp>
#include <weft/go.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace weft::test {

class runtime_test : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(eventually([] { return num_goroutine() == for_ever(); }))
        << num_goroutine() - for_ever() << " goroutines were left behind";
  }

  // Goroutines that a test has to leave behind, because nothing can end them.
  static void stay_for_ever(std::size_t n) { for_ever_ += n; }
  static std::size_t for_ever() { return for_ever_; }

 private:
  static inline std::size_t for_ever_ = 0;
};

// A number of processors for as long as a block lasts.
class procs_scope {
 public:
  explicit procs_scope(int n) : before_(max_procs(n)) {}
  procs_scope(const procs_scope&) = delete;
  procs_scope& operator=(const procs_scope&) = delete;
  ~procs_scope() { max_procs(before_); }

 private:
  int before_;
};

// How many goroutines are parked for that reason, at some instant of the call.
inline std::size_t count_waiting(weft::detail::wait_reason reason) {
  std::size_t n = 0;
  sched::the_scheduler.records.for_each([&](const sched::goroutine& g) {
    if (g.get_status() == sched::state::waiting &&
        g.reason.load(std::memory_order_relaxed) == reason) {
      ++n;
    }
  });
  return n;
}

inline bool until_waiting(std::size_t n, weft::detail::wait_reason reason) {
  return eventually([&] { return count_waiting(reason) >= n; });
}

// What a counter has gained.
inline std::uint64_t grown(const debug::scheduler_stats& since, const char* name) {
  return debug::stats()[name] - since[name];
}

}  // namespace weft::test
