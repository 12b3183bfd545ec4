// expectations.hpp: GoogleTest's expectations, kept from its report while a run goes on.
// expectations_gtest.cpp does it; expectations_none.cpp is for builds without GoogleTest.
#pragma once

#include <memory>
#include <string>

namespace weft::test {

class expectations {
 public:
  virtual ~expectations() = default;
  // Returns: whether any has failed since this object was made, and what the first one said.
  virtual bool failed(std::string& message) const = 0;
};

// Returns: one that intercepts the expectations of this thread while it lives; null without
// GoogleTest.
std::unique_ptr<expectations> watch_expectations();

// Returns: the arguments that select the test that runs, as " --gtest_filter=..."; may be empty.
std::string test_filter();

}  // namespace weft::test
