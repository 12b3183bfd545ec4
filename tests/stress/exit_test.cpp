// The process ends while everything runs: exit() must come back from stopping the machines,
// whatever they were doing, and static objects must not be used after their destruction.
#include "base/random.hpp"
#include "child_process.hpp"
#include "eventually.hpp"
#include "stress_watchdog.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

// Destroyed by exit(). A goroutine that finds it destroyed ends the process with a wrong status.
class landmark {
 public:
  void visit() const {
    if (alive_.load(std::memory_order_relaxed) != magic) std::_Exit(99);
  }
  ~landmark() {
    alive_.store(0, std::memory_order_relaxed);
    // Long enough for a goroutine that has not been stopped to come by.
    std::this_thread::sleep_for(2ms);
  }

 private:
  static constexpr std::uint32_t magic = 0x6c616e64;
  std::atomic<std::uint32_t> alive_{magic};  // relaxed: any value but this one is wrong
};
const landmark the_landmark;

void keep_busy(base::random random) {
  for (;;) {
    the_landmark.visit();
    switch (random.below(8)) {
      case 0:
        this_goroutine::sleep_for(std::chrono::nanoseconds(random.below(200'000)));
        break;
      case 1: {
        wait_group inner;
        for (int i = 0; i < 4; ++i) inner.go([] { the_landmark.visit(); });
        inner.wait();
        break;
      }
      case 2: {
        // The exiting thread needs the allocator's lock, too.
        std::vector<std::unique_ptr<char[]>> memory;
        for (int i = 0; i < 50; ++i) memory.emplace_back(new char[1 + random.below(4000)]);
        break;
      }
      case 3:
        max_procs(1 + static_cast<int>(random.below(8)));
        break;
      case 4:
        this_goroutine::lock_thread();
        this_goroutine::yield();
        this_goroutine::unlock_thread();
        break;
      case 5:
        if (async([] { return 1; }).get() != 1) std::_Exit(98);
        break;
      default:
        for (std::uint32_t i = random.below(20'000); i != 0; --i) the_landmark.visit();
        break;
    }
  }
}

// max_procs holds the scheduler's own locks, but does not count as being inside the runtime.
void keep_resizing(base::random random) {
  for (;;) max_procs(1 + static_cast<int>(random.below(64)));
}

enum class exits : std::uint8_t { main_thread, goroutine };

[[noreturn]] void exit_in_the_middle(std::uint64_t seed, exits who) {
  // Never destroyed: it watches over exit() itself.
  new test::watchdog(20s, "WEFT_TEST_SEED as below");
  base::random random(seed);
  const auto activity = random.below(2) == 0 ? &keep_busy : &keep_resizing;
  for (int i = 0; i < 6; ++i) go(activity, base::random(random.next()));
  const auto pause = std::chrono::microseconds(500 + random.below(4000));
  if (who == exits::goroutine) {
    go([pause] {
      this_goroutine::sleep_for(pause);
      std::exit(7);
    });
    for (;;) std::this_thread::sleep_for(1s);
  }
  std::this_thread::sleep_for(pause);
  std::exit(7);
}

// A thread stopped while it holds a lock that exit() needs hangs the process; one that is not
// stopped finds the landmark gone.
class process_exit : public ::testing::TestWithParam<exits> {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_P(process_exit, comes_to_an_end_whatever_goroutines_do) {
  const char* const given = std::getenv("WEFT_TEST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  // The child of a death test runs the same loop up to its own turn, and needs the same seeds.
  ::setenv("WEFT_TEST_SEED", std::to_string(seed).c_str(), 1);
  base::random random(seed);
  for (int i = 0; i < test::scaled(60, 12); ++i) {
    const std::uint64_t once = random.next();
    EXPECT_EXIT(exit_in_the_middle(once, GetParam()), ::testing::ExitedWithCode(7), "")
        << "to replay it: WEFT_TEST_SEED=" << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(from, process_exit,
                         ::testing::Values(exits::main_thread, exits::goroutine),
                         [](const auto& of) {
                           return of.param == exits::goroutine ? "a_goroutine" : "the_main_thread";
                         });

// What destructors and handlers wait for, each many times over: whatever the others were doing when
// they were stopped, the process goes on to its end.
void expect_ends(const std::string& program, const std::vector<std::string>& arguments,
                 const std::string& says, int times = test::scaled(20, 3)) {
  for (int i = 0; i < times; ++i) {
    const test::child_result r =
        test::run_program(program, {.arguments = arguments, .patience = 20s});
    ASSERT_EQ(r.status, 7) << program << ", the " << i << "th time\n" << r;
    ASSERT_TRUE(r.says(says)) << program << ", the " << i << "th time\n" << r;
  }
}

// What programs have had: objects with a destructor that waits, and locks that are a part of the
// program.
constexpr int often = test::scaled(100, 3);

TEST(exit_waits_soak, end_every_time) {
  for (const char* const how : {"return", "atexit", "inside"}) {
    const int times = std::string(how) == "return" ? often : test::scaled(20, 3);
    for (const char* const what : {"run", "after", "ticker"}) {
      expect_ends("exit_waits", {what, how}, "", times);
    }
    for (const char* const what : {"go", "sleep", "yield"}) {
      expect_ends("exit_waits", {what, how}, "");
    }
    for (const char* const what : {"group", "wait_group", "future"}) {
      expect_ends("exit_waits", {what, how}, "weft: exit: gave up a wait (", times);
    }
    expect_ends("exit_waits", {"receive", how}, "weft: exit: gave up a wait (");
  }
}

#if WEFT_CAN_LINK_STATICALLY
// Then the locks of the C library are a part of the program.
TEST(exit_waits_soak, end_every_time_in_a_static_program) {
  for (const char* const how : {"return", "inside"}) {
    const int times = std::string(how) == "return" ? often : test::scaled(20, 3);
    for (const char* const what : {"run", "after"}) {
      expect_ends("exit_waits_static", {what, how}, "", times);
    }
    for (const char* const what : {"group", "wait_group", "future"}) {
      expect_ends("exit_waits_static", {what, how}, "weft: exit: gave up a wait (", times);
    }
  }
}
#endif

TEST(exit_in_library_soak, ends_every_time) {
  for (const char* const how : {"printf", "malloc", "throw", "local_time"}) {
    expect_ends("exit_in_library", {how}, "exited");
#if WEFT_CAN_LINK_STATICALLY
    expect_ends("exit_in_library_static", {how}, "exited", often);
#endif
  }
}

TEST(exit_own_allocator_soak, ends_every_time) {
  expect_ends("exit_own_allocator", {}, "exited", often);
}

}  // namespace
}  // namespace weft
