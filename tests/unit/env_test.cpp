// env_test.cpp: what users write into WEFT_MAXPROCS, WEFT_STACK and WEFT_DEBUG, right and wrong.
#include "base/env.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::base::guard_setting;
using weft::base::settings;

struct parsed {
  settings values;
  std::vector<std::string> warnings;
};

parsed parse(std::string_view max_procs, std::string_view stack, std::string_view debug) {
  parsed p;
  const weft::base::warn_sink sink{
      [](void* context, std::string_view line) noexcept {
        static_cast<std::vector<std::string>*>(context)->emplace_back(line);
      },
      &p.warnings,
  };
  p.values = weft::base::parse(max_procs, stack, debug, sink);
  return p;
}

// One warning that names all of `parts`: the variable, the value, and what is used instead.
void expect_one_warning(const parsed& p, std::initializer_list<std::string_view> parts) {
  ASSERT_EQ(p.warnings.size(), 1u);
  for (const std::string_view part : parts) {
    EXPECT_NE(p.warnings[0].find(part), std::string::npos) << p.warnings[0] << " lacks " << part;
  }
  EXPECT_EQ(p.warnings[0].find('\n'), std::string::npos);
}

// A program without any of the variables must run with the documented defaults, silently.
TEST(env, nothing_set_gives_the_defaults_without_a_word) {
  const parsed p = parse("", "", "");
  EXPECT_EQ(p.values, settings{});
  EXPECT_TRUE(p.warnings.empty());
  EXPECT_EQ(p.values.max_procs, 0);
  EXPECT_EQ(p.values.stack_bytes, 0u);
  EXPECT_EQ(p.values.guard, guard_setting::automatic);
  EXPECT_EQ(p.values.slice, 10ms);
  EXPECT_EQ(p.values.stall, 0ms);
  EXPECT_TRUE(p.values.io_uring);
  EXPECT_FALSE(p.values.seed.has_value());
}

TEST(env, max_procs_takes_positive_numbers) {
  EXPECT_EQ(parse("1", "", "").values.max_procs, 1);
  EXPECT_EQ(parse(" 64 ", "", "").values.max_procs, 64);
  EXPECT_EQ(parse("2147483647", "", "").values.max_procs, 2147483647);
}

// A mistyped variable must not take a service down, nor be swallowed.
TEST(env, max_procs_that_make_no_sense_are_reported_once_and_ignored) {
  for (const char* bad :
       {"0", "-1", "two", "4x", "1.5", "2147483648", "99999999999999999999", "0x4", "+4"}) {
    const parsed p = parse(bad, "", "");
    EXPECT_EQ(p.values, settings{}) << bad;
    expect_one_warning(p, {"WEFT_MAXPROCS", bad, "number of CPUs"});
  }
}

TEST(env, stack_sizes_have_units_in_either_case) {
  EXPECT_EQ(parse("", "65536", "").values.stack_bytes, 65536u);
  EXPECT_EQ(parse("", "64k", "").values.stack_bytes, 65536u);
  EXPECT_EQ(parse("", "64K", "").values.stack_bytes, 65536u);
  EXPECT_EQ(parse("", "1m", "").values.stack_bytes, 1u << 20);
  EXPECT_EQ(parse("", "3M", "").values.stack_bytes, 3u << 20);
  EXPECT_EQ(parse("", "1g", "").values.stack_bytes, 1u << 30);
  EXPECT_EQ(parse("", "16384", "").values.stack_bytes, 16384u);
  EXPECT_TRUE(parse("", "1G", "").warnings.empty());
}

TEST(env, stack_sizes_that_make_no_sense_are_reported_once_and_ignored) {
  for (const char* bad : {"0", "0k", "-64k", "k", "64kb", "64 k", "1.5m", "lots", "1t"}) {
    const parsed p = parse("", bad, "");
    EXPECT_EQ(p.values, settings{}) << bad;
    expect_one_warning(p, {"WEFT_STACK", bad, "default"});
  }
}

// A stack below the minimum cannot even hold a signal frame; above the maximum a handful of
// goroutines would use the address space up. Both are meant seriously, so the nearest bound is
// used.
TEST(env, stack_sizes_out_of_bounds_become_the_bound) {
  for (const char* small : {"1", "4k", "16383"}) {
    const parsed p = parse("", small, "");
    EXPECT_EQ(p.values.stack_bytes, weft::base::stack_bytes_min);
    expect_one_warning(p, {"WEFT_STACK", small, "16k"});
  }
  for (const char* large : {"2g", "1073741825", "99999999999999999999", "99999999999999999999g",
                            "18446744073709551615k", "17179869184g"}) {
    const parsed p = parse("", large, "");
    EXPECT_EQ(p.values.stack_bytes, weft::base::stack_bytes_max) << large;
    expect_one_warning(p, {"WEFT_STACK", large, "1g"});
  }
}

TEST(env, debug_knows_every_key) {
  const parsed p = parse("", "",
                         "guard=mprotect,asyncpreemptoff=1,preemptsignal=23,slice=5ms,stall=200us,"
                         "iouring=0,seed=42");
  EXPECT_TRUE(p.warnings.empty());
  EXPECT_EQ(p.values.guard, guard_setting::mprotect);
  EXPECT_TRUE(p.values.async_preempt_off);
  EXPECT_EQ(p.values.preempt_signal, 23);
  EXPECT_EQ(p.values.slice, 5ms);
  EXPECT_EQ(p.values.stall, 200us);
  EXPECT_FALSE(p.values.io_uring);
  EXPECT_EQ(p.values.seed, 42u);
}

TEST(env, debug_forgives_blanks_and_stray_commas_and_takes_the_last_of_two) {
  const parsed p =
      parse("", "", " ,guard = madvise,, asyncpreemptoff , seed=1,seed=0xFFffffffFFFFFFFF,");
  EXPECT_TRUE(p.warnings.empty());
  EXPECT_EQ(p.values.guard, guard_setting::madvise);
  EXPECT_TRUE(p.values.async_preempt_off);
  EXPECT_EQ(p.values.seed, ~std::uint64_t{0});
  EXPECT_FALSE(parse("", "", "asyncpreemptoff=1,asyncpreemptoff=0").values.async_preempt_off);
}

// A user who sets what Go has must learn that it is not there yet, in one line.
TEST(env, what_does_nothing_yet_is_told_once) {
  const parsed p = parse("", "", "schedtrace=1000,scheddetail=1,schedtrace=500,seed=1");
  expect_one_warning(p, {"WEFT_DEBUG", "schedtrace=1000", "nothing yet"});
  EXPECT_EQ(p.values.seed, 1u);
}

TEST(env, debug_durations_have_units_and_count_milliseconds_without) {
  EXPECT_EQ(parse("", "", "slice=10").values.slice, 10ms);
  EXPECT_EQ(parse("", "", "slice=1s").values.slice, 1s);
  EXPECT_EQ(parse("", "", "slice=1500ns").values.slice, 1500ns);
  EXPECT_EQ(parse("", "", "slice=7US").values.slice, 7us);
  EXPECT_EQ(parse("", "", "slice=3600s").values.slice, 1h);
}

TEST(env, each_bad_debug_item_is_reported_once_and_leaves_its_default) {
  for (const char* bad : {"guard=on",
                          "guard",
                          "asyncpreemptoff=yes",
                          "preemptsignal=9",
                          "preemptsignal=19",
                          "preemptsignal=11",
                          "preemptsignal=32",
                          "preemptsignal=65",
                          "preemptsignal=0",
                          "slice=0",
                          "slice=10h",
                          "slice=3601s",
                          "stall=fast",
                          "slice=99999999999999999999",
                          "slice=18446744073709551615s",
                          "seed=",
                          "seed=0x",
                          "seed=-1",
                          "seed=0x1ffffffffffffffff",
                          "unknown=1",
                          "unknown",
                          "=1",
                          "GUARD=none"}) {
    const parsed p = parse("", "", bad);
    EXPECT_EQ(p.values, settings{}) << bad;
    expect_one_warning(p, {"WEFT_DEBUG", bad, "ignored"});
  }
}

// The good items beside a bad one still count.
TEST(env, a_bad_item_does_not_spoil_its_neighbours) {
  const parsed p = parse("4", "nonsense", "guard=none,what=1,slice=oops,seed=7");
  EXPECT_EQ(p.warnings.size(), 3u);
  EXPECT_EQ(p.values.max_procs, 4);
  EXPECT_EQ(p.values.guard, guard_setting::none);
  EXPECT_EQ(p.values.slice, 10ms);
  EXPECT_EQ(p.values.seed, 7u);
}

// A value may be anything: a warning stays one line of sane length, also for hostile ones.
TEST(env, warnings_are_one_line_whatever_the_value) {
  const std::string long_value(5000, 'x');
  expect_one_warning(parse(long_value, "", ""), {"WEFT_MAXPROCS", "xxx...\"", "number of CPUs"});
  expect_one_warning(parse("1\n2\x1b[31m", "", ""), {"WEFT_MAXPROCS", "1?2?[31m"});
}

// What load_env() prints and keeps, seen from outside: in a child, because it counts only once.
TEST(env, load_env_reads_the_environment_once_and_warns_on_stderr) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::dup2(pipe_fds[1], STDERR_FILENO);
    ::setenv("WEFT_MAXPROCS", "3", 1);
    ::setenv("WEFT_STACK", "bogus", 1);
    ::setenv("WEFT_DEBUG", "seed=9", 1);
    weft::base::load_env();
    ::setenv("WEFT_MAXPROCS", "5", 1);
    weft::base::load_env();
    const settings& s = weft::base::env();
    ::_exit(s.max_procs == 3 && s.stack_bytes == 0 && s.seed == 9u ? 0 : 1);
  }
  ::close(pipe_fds[1]);
  std::string printed;
  char buffer[512];
  for (ssize_t n; (n = ::read(pipe_fds[0], buffer, sizeof buffer)) > 0;) {
    printed.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(pipe_fds[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(
      printed,
      "weft: WEFT_STACK: \"bogus\" is not a size such as 65536, 64k or 1m; using the default\n");
}

}  // namespace
