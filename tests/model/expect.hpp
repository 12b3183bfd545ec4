// expect.hpp: a protocol is right in every order within its bounds, or a defect in it is found.
#pragma once

#include "model/explore.hpp"

#include <gtest/gtest.h>

namespace weft::model {

inline void expect_right(const options& o, const make_function& make) {
  const result r = explore(o, make);
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted) << r.executions << " executions";
}

inline void expect_wrong(const options& o, const make_function& make) {
  const result r = explore(o, make);
  EXPECT_FALSE(r.ok) << r.executions << " executions";
}

}  // namespace weft::model
