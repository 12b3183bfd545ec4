// check.hpp: conditions that must hold. WEFT_CHECK is for cold paths and checks in every build.
// WEFT_ASSERT is for hot paths and checks only if WEFT_ASSERTIONS is defined (debug and sanitizer
// presets). If a condition does not hold, both end the process through fatal(). WEFT_ASSERT_ON is
// WEFT_ASSERT for a protocol with the parameter Platform (platform.hpp): in a model test, a
// condition that does not hold is a finding of the exploration.
#pragma once

#include "base/fatal.hpp"

#define WEFT_STRINGIFY_(x) #x
#define WEFT_STRINGIFY(x) WEFT_STRINGIFY_(x)

#define WEFT_CHECK(condition)                            \
  (static_cast<bool>(condition)                          \
       ? static_cast<void>(0)                            \
       : ::weft::base::fatal("check failed at " __FILE__ \
                             ":" WEFT_STRINGIFY(__LINE__) ": " #condition))

#ifdef WEFT_ASSERTIONS
#define WEFT_ASSERT(condition) WEFT_CHECK(condition)
#define WEFT_ASSERT_ON(platform, condition)     \
  platform::check(static_cast<bool>(condition), \
                  "check failed at " __FILE__ ":" WEFT_STRINGIFY(__LINE__) ": " #condition)
#else
#define WEFT_ASSERT(condition) static_cast<void>(0)
#define WEFT_ASSERT_ON(platform, condition) static_cast<void>(0)
#endif
