// stall_test.cpp: WEFT_DEBUG=stall=50ms names the goroutine that holds its processor for longer.
#include "base/sanitizer.hpp"
#include "child_process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace {

using weft::test::child_result;
using weft::test::run_program;

child_result run_with(const std::string& debug, const std::string& how) {
  return run_program("stall", {.arguments = {how},
                               .environment = {{"WEFT_DEBUG", debug}, {"WEFT_MAXPROCS", "1"}}});
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(stall, one_that_computes_is_named_with_its_stack) {
  const child_result r = run_with("stall=50ms", "computes");
  EXPECT_EQ(r.status, 0) << r;
  EXPECT_TRUE(r.says("weft: stall: goroutine ")) << r;
  EXPECT_TRUE(r.says("\"slow\" [running]")) << r;
  if (!weft::base::sanitizer::is_thread) {
    EXPECT_TRUE(r.says("compute_for")) << r;
  }
  EXPECT_TRUE(r.says("created by")) << r;
}

TEST(stall, one_that_sleeps_is_named_with_its_system_call) {
  const child_result r = run_with("stall=50ms", "sleeps");
  EXPECT_EQ(r.status, 0) << r;
  EXPECT_TRUE(r.says("asleep in system call ")) << r;
  EXPECT_TRUE(r.says("\"slow\"")) << r;
}

TEST(stall, reports_are_limited_to_one_a_second) {
  const auto start = std::chrono::steady_clock::now();
  const child_result r = run_with("stall=50ms", "computes");  // three stalls in 0.6 s
  const auto seconds = (std::chrono::steady_clock::now() - start) / std::chrono::seconds(1);
  EXPECT_GE(count(r.errors, "weft: stall:"), 1u) << r;
  EXPECT_LE(count(r.errors, "weft: stall:"), 1u + static_cast<std::size_t>(seconds)) << r;
}

TEST(stall, is_not_reported_unless_asked_for) {
  const child_result r = run_with("", "computes");
  EXPECT_EQ(r.errors, "") << r;
}

}  // namespace
