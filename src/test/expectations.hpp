// expectations.hpp: intercepts GoogleTest's expectations during a run, so that they are not
// reported. expectations_gtest.cpp implements this; expectations_none.cpp is for builds without
// GoogleTest.
#pragma once

#include <memory>
#include <string>

namespace weft::test {

class expectations {
 public:
  virtual ~expectations() = default;
  // Returns: whether an expectation has failed since this object was made. `message` is that of the
  // first.
  virtual bool failed(std::string& message) const = 0;
};

// Returns: an object that intercepts the expectations of this thread while it lives; null without
// GoogleTest.
std::unique_ptr<expectations> watch_expectations();

// Returns: the arguments that select the current test, as " --gtest_filter=..."; may be empty.
std::string test_filter();

}  // namespace weft::test
