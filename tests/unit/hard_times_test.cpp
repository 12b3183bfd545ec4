// hard_times_test.cpp: too little memory, too few threads, nonsense in the environment. Nothing may
// hang and nothing that was started may be lost.
#include "child_process.hpp"
#include "eventually.hpp"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace {

using weft::test::child_result;
using weft::test::run_program;
using weft::test::scaled;

std::ptrdiff_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---------------------------------------------------------------------------------------- stacks

#if !WEFT_TSAN  // which needs more memory of its own for each goroutine than the stack takes

// When stacks run out, go says so or goroutines wait for those of others; all that were started run
// in the end, and afterwards everything is as before.
void expect_all_ran(const std::string& how, const std::string& procs) {
  const child_result r =
      run_program("scarce_stacks", {.arguments = {how}, .environment = {{"WEFT_MAXPROCS", procs}}});
  EXPECT_EQ(r.status, 0) << how << " on " << procs << "\n" << r;
  EXPECT_TRUE(contains(r.output, "all ran")) << how << " on " << procs << "\n" << r;
  // An emulator does not enforce the limit.
  if (sizeof(WEFT_EMULATOR) == 1) {
    EXPECT_TRUE(r.says("no memory for a goroutine's stack")) << how << " on " << procs << "\n" << r;
  }
}

TEST(scarce_stacks, goroutines_that_wait_for_a_stack_run_when_others_have_ended) {
  for (const char* const procs : {"1", "2", "4"}) expect_all_ran("gate", procs);
}

TEST(scarce_stacks, goroutines_run_when_sleepers_have_ended) {
  for (const char* const procs : {"1", "4"}) expect_all_ran("sleep", procs);
}

TEST(scarce_stacks, goroutines_of_plain_threads_run_too) { expect_all_ran("forget", "2"); }

// A goroutine bound to its thread is picked by others while they look for one that has a stack.
TEST(scarce_stacks, locked_goroutines_stay_on_their_threads) {
  for (const char* const procs : {"1", "2", "4"}) expect_all_ran("locked", procs);
}

// Those that hold the stacks may take their time: a lack of memory that lasts is no deadlock while
// somebody's timer is still running.
TEST(scarce_stacks, a_shortage_that_lasts_is_lived_through) { expect_all_ran("long", "2"); }

// Nothing of weft's will give memory back then; but the program may, on another thread.
TEST(scarce_stacks, goroutines_of_which_none_has_a_stack_wait_and_say_so) {
  const child_result r = run_program(
      "scarce_stacks", {.arguments = {"nobody"}, .environment = {{"WEFT_STACK", "1g"}}});
  EXPECT_EQ(r.status, 0) << r;
  EXPECT_TRUE(contains(r.output, "all ran")) << r;
  if (sizeof(WEFT_EMULATOR) > 1) return;  // it does not enforce the limit
  EXPECT_EQ(r.output, "all ran\n") << r;
  EXPECT_LE(lines(r.errors), 3) << "not each processor by itself\n" << r;
  EXPECT_TRUE(r.says("no memory for the stack of any goroutine")) << r;
}

struct million {
  long ran = 0;
  long at_once = 0;
  long ms = 0;
};
constexpr long wanted = 1'000'000;
constexpr long sleep_ms = 20;

million run_million(rlim_t address_space) {
  const rlimit limit{address_space, address_space};
  const child_result r = run_program(
      "scarce_million", {.arguments = {std::to_string(wanted), std::to_string(sleep_ms)},
                         .before_exec = [limit] { ::setrlimit(RLIMIT_AS, &limit); }});
  EXPECT_EQ(r.status, 0) << r;
  million m;
  std::istringstream(r.output) >> m.ran >> m.at_once >> m.ms;
  std::printf("%ld ran, %ld at once, %ld ms\n", m.ran, m.at_once, m.ms);
  return m;
}

// A lack of memory makes a program slower by no more than what it makes wait: with room for a
// hundredth of the goroutines, these run in a hundred rounds, one as quick as the other.
TEST(scarce_stacks_soak, a_million_goroutines_run_in_two_gigabytes_of_addresses) {
  if (weft::test::slow_build) GTEST_SKIP() << "measures time, and addresses are the sanitizer's";
  const million free = run_million(RLIM_INFINITY);
  EXPECT_EQ(free.ran, wanted);
  const million scarce = run_million(rlim_t{2} << 30);
  EXPECT_EQ(scarce.ran, wanted);
  ASSERT_GT(scarce.at_once, 0);
  const long rounds_ms = wanted / scarce.at_once * sleep_ms;
  EXPECT_LE(scarce.ms, 3 * (free.ms + rounds_ms)) << rounds_ms << " ms of sleep";
}

// --------------------------------------------------------------------------------------- records

void expect_all_called(const std::vector<std::string>& how) {
  for (const char* const procs : {"1", "2", "4"}) {
    const child_result r = run_program("scarce_records", {.arguments = how,
                                                          .environment = {{"WEFT_MAXPROCS", procs}},
                                                          .patience = std::chrono::seconds(120)});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_TRUE(contains(r.output, "all were called")) << "on " << procs << "\n" << r;
  }
}

// A timer has no goroutine until its time. If there is no memory for one then, its function is
// called later, and never not at all.
TEST(scarce_records, functions_of_timers_are_called_when_there_is_memory) { expect_all_called({}); }

// A timer whose call has to wait for memory can be set anew, and its time comes again before there
// is memory. Each time is one call.
TEST(scarce_records, a_timer_that_is_set_anew_is_called_for_each_time) {
  expect_all_called({"again"});
}

#endif

// --------------------------------------------------------------------------------------- threads

// With a number of threads anywhere between none and enough the program does its work on those it
// has, and says once that it wanted more.
void expect_finishes_with(int threads) {
  const child_result r = run_program("scarce_threads", {.arguments = {std::to_string(threads)},
                                                        .patience = std::chrono::seconds(30)});
  ASSERT_FALSE(r.timed_out) << threads << " threads\n" << r;
  EXPECT_EQ(r.status, 0) << threads << " threads\n" << r;
  EXPECT_TRUE(contains(r.output, "refused")) << threads << " threads\n" << r;
  EXPECT_EQ(contains(r.output, "EAGAIN"), threads == 0) << threads << " threads\n" << r;
  // One for the service threads, one for the machines.
  EXPECT_LE(lines(r.errors), threads < 3 ? 2 : 1) << threads << " threads\n" << r;
}

TEST(scarce_threads, the_program_finishes_with_the_threads_there_are) {
  for (int threads = 0; threads <= 6; ++threads) {
    // Without a monitor nothing repairs a lost wake-up, so lost wake-ups count most here.
    const int times = threads < 3 ? scaled(20, 5) : scaled(3, 1);
    for (int i = 0; i < times && !::testing::Test::HasFailure(); ++i) expect_finishes_with(threads);
  }
}

child_result under_thread_limit(const std::string& when) {
  // The leak checker needs a thread, too.
  return run_program("thread_limit",
                     {.arguments = {when}, .environment = {{"ASAN_OPTIONS", "detect_leaks=0"}}});
}

// The kernel's own refusal, before the runtime has a single thread: the caller hears of it.
TEST(thread_limit, at_the_start_the_first_use_throws) {
  for (const char* const first : {"start", "timer", "after_func", "deadline"}) {
    const child_result r = under_thread_limit(first);
    EXPECT_EQ(r.status, 0) << first << "\n" << r;
    EXPECT_EQ(r.output, "EAGAIN\n") << first << "\n" << r;
  }
}

// Later the machines that exist carry on, and one line tells why it is slow.
TEST(thread_limit, later_the_program_carries_on_and_says_so_once) {
  const child_result r = under_thread_limit("later");
  EXPECT_EQ(r.status, 0) << r;
  EXPECT_EQ(r.output, "2000\n") << r;
  EXPECT_EQ(lines(r.errors), 1) << r;
  EXPECT_TRUE(r.says("cannot start another thread")) << r;
}

// ----------------------------------------------------------------------------------- environment

std::size_t stack_bytes_of(const child_result& r) {
  const std::size_t second = r.output.find('\n');
  return second == std::string::npos ? 0 : std::stoul(r.output.substr(second + 1));
}

TEST(weft_stack, sets_the_default) {
  const child_result r = run_program("print_settings", {.environment = {{"WEFT_STACK", "64k"}}});
  EXPECT_EQ(r.status, 0) << r;
  EXPECT_EQ(r.errors, "") << r;
  EXPECT_LE(stack_bytes_of(r), std::size_t{64} << 10) << r;
  EXPECT_GE(stack_bytes_of(r), std::size_t{60} << 10) << r;
}

// A typing error must not keep a program from starting, nor go unnoticed.
TEST(weft_stack, nonsense_is_told_in_one_line_and_ignored) {
  const std::size_t usual = stack_bytes_of(run_program("print_settings"));
  EXPECT_GE(usual, std::size_t{250} << 10);
  for (const char* const size : {"huge", "-1", "0", "64q", "1.5m", " k"}) {
    const child_result r = run_program("print_settings", {.environment = {{"WEFT_STACK", size}}});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(lines(r.errors), 1) << r;
    EXPECT_TRUE(r.says("WEFT_STACK")) << r;
    EXPECT_EQ(stack_bytes_of(r), usual) << r;
  }
}

// Values that are too small or too large are corrected, with a warning.
TEST(weft_stack, sizes_out_of_range_are_put_right) {
  const child_result small = run_program("print_settings", {.environment = {{"WEFT_STACK", "1"}}});
  EXPECT_EQ(small.status, 0) << small;
  EXPECT_EQ(lines(small.errors), 1) << small;
  EXPECT_LE(stack_bytes_of(small), std::size_t{16} << 10) << small;
  const child_result large = run_program("print_settings", {.environment = {{"WEFT_STACK", "2g"}}});
  EXPECT_EQ(large.status, 0) << large;
  EXPECT_EQ(lines(large.errors), 1) << large;
  EXPECT_GE(stack_bytes_of(large) + 4096, std::size_t{1} << 30) << large;
}

}  // namespace
