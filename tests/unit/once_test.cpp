// call_once: once, seen by all, and again if it threw.
#include "runtime_fixture.hpp"

#include <weft/sync.hpp>
#include <weft/test.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using weft::test::bubble;
using weft::test::explore;
using weft::test::procs_scope;
using weft::test::runs;
using weft::test::runtime_test;
using weft::test::scaled;

class once : public runtime_test {};

static_assert(!std::is_copy_constructible_v<weft::once_flag>);
constinit weft::once_flag made_at_compile_time;

TEST_F(once, passes_arguments_and_runs_the_first_alone) {
  weft::once_flag f;
  std::string got;
  struct target {
    void set(std::string& s, std::unique_ptr<int> v) const { s = std::to_string(*v); }
  } t;
  weft::call_once(f, &target::set, t, got, std::make_unique<int>(7));
  weft::call_once(f, [&] { got = "twice"; });
  EXPECT_EQ(got, "7");
  weft::call_once(made_at_compile_time, [] {});
}

// No caller returns before the one call has ended, and every caller sees what it did.
TEST_F(once, everyone_sees_what_the_one_call_did) {
  explore({.runs = runs(2'000)}, [] {
    weft::once_flag f;
    weft::test::var<int> made{0};
    weft::wait_group all;
    for (int i = 0; i < 4; ++i) {
      all.go([&] {
        weft::call_once(f, [&] {
          weft::this_goroutine::yield();
          ++made;
        });
        EXPECT_EQ(made, 1);
      });
    }
    all.wait();
  });
}

TEST_F(once, a_call_that_throws_does_not_count) {
  explore({.runs = runs(2'000)}, [] {
    weft::once_flag f;
    weft::test::var<int> tries{0};
    weft::test::atomic<int> thrown{0};
    weft::wait_group all;
    for (int i = 0; i < 4; ++i) {
      all.go([&] {
        try {
          weft::call_once(f, [&] {
            ++tries;
            if (tries <= 2) throw std::runtime_error("not yet");
          });
          EXPECT_EQ(tries, 3);
        } catch (const std::runtime_error&) {
          ++thrown;
        }
      });
    }
    all.wait();
    EXPECT_EQ(thrown, 2);
    EXPECT_EQ(tries, 3);
  });
}

// A call that ends the goroutine has not returned either.
TEST_F(once, a_call_that_ends_the_goroutine_does_not_count) {
  weft::run([] {
    weft::once_flag f;
    weft::wait_group all;
    all.go([&] { weft::call_once(f, [] { weft::this_goroutine::exit(); }); });
    all.wait();
    bool ran = false;
    weft::call_once(f, [&] { ran = true; });
    EXPECT_TRUE(ran);
  });
}

TEST_F(once, who_waits_says_so) {
  const auto r = weft::test::try_explore({.runs = 1, .shrink = false}, [] {
    weft::once_flag f;
    weft::call_once(f, [&] { weft::call_once(f, [] {}); });  // waits for itself
  });
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.report.find("call_once"), std::string::npos) << r.report;
}

TEST_F(once, goroutines_and_threads_on_real_processors) {
  for (const int procs : {1, 2, 8}) {
    const procs_scope p(procs);
    for (int round = 0; round < scaled(200, 20); ++round) {
      weft::once_flag f;
      int ran = 0;
      const auto call = [&] {
        weft::call_once(f, [&] { ++ran; });
        EXPECT_EQ(ran, 1);
      };
      std::thread t(call);
      weft::run([&] {
        weft::wait_group all;
        for (int i = 0; i < 10; ++i) all.go(call);
        all.wait();
      });
      t.join();
    }
  }
}

}  // namespace
