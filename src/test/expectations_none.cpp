// expectations_none.cpp: expectations.hpp for programs without GoogleTest.
#include "test/expectations.hpp"

namespace weft::test {

std::unique_ptr<expectations> watch_expectations() { return nullptr; }
std::string test_filter() { return {}; }

}  // namespace weft::test
