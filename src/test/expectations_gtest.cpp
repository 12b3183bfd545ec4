// expectations_gtest.cpp: expectations.hpp for programs that use GoogleTest.
#include "test/expectations.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace weft::test {
namespace {

class intercepted final : public expectations {
 public:
  bool failed(std::string& message) const override {
    for (int i = 0; i < results_.size(); ++i) {
      const ::testing::TestPartResult& r = results_.GetTestPartResult(i);
      if (!r.failed()) continue;
      message = std::string(r.file_name() != nullptr ? r.file_name() : "unknown file") + ":" +
                std::to_string(r.line_number()) + ": " + r.message();
      return true;
    }
    return false;
  }

 private:
  ::testing::TestPartResultArray results_;
  ::testing::ScopedFakeTestPartResultReporter reporter_{
      ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results_};
};

}  // namespace

std::unique_ptr<expectations> watch_expectations() { return std::make_unique<intercepted>(); }

std::string test_filter() {
  const ::testing::TestInfo* const t = ::testing::UnitTest::GetInstance()->current_test_info();
  if (t == nullptr) return {};
  return std::string(" --gtest_filter=") + t->test_suite_name() + "." + t->name();
}

}  // namespace weft::test
