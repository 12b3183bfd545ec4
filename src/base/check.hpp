// check.hpp: conditions that must hold. WEFT_CHECK stands on cold paths in every build; WEFT_ASSERT
// stands on hot paths and is compiled in where WEFT_ASSERTIONS is defined (debug and sanitizer
// presets). Either one ends the process through fatal().
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
#else
#define WEFT_ASSERT(condition) static_cast<void>(0)
#endif
