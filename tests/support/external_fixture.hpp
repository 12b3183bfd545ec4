// external_fixture.hpp: tests with libraries that have never heard of goroutines and block in the
// kernel without a word. What keeps the others running is the monitor alone, which notices and
// takes the processor away; the counter detach.blocked says that it did.
#pragma once

#include "eventually.hpp"
#include "runtime_fixture.hpp"

#include <weft/debug.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace weft::test {

// The parameter is the number of processors.
class external_test : public runtime_test, public ::testing::WithParamInterface<int> {
 protected:
  using clock = std::chrono::steady_clock;

  // Whether processors were taken from goroutines that blocked, since the test began.
  void expect_detached() const {
    EXPECT_GT(debug::stats()["detach.blocked"], detached_before_)
        << "nobody took a processor from a goroutine that blocked";
  }

  // How long calls may take that wait together. On a busy machine, and all the more under a
  // sanitizer, hundreds of threads take their time; one call after the other would take 5 s at
  // least in each of these tests, even on two processors.
  static constexpr std::chrono::milliseconds together{scaled(2000, 3000)};

 private:
  procs_scope procs_{GetParam()};
  std::uint64_t detached_before_ = debug::stats()["detach.blocked"];
};

inline std::string processors_name(const ::testing::TestParamInfo<int>& info) {
  return std::to_string(info.param) + (info.param == 1 ? "_processor" : "_processors");
}

}  // namespace weft::test
