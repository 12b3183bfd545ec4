// allocated.hpp: how much of the heap is in use, in every build.
#pragma once

#include "base/sanitizer.hpp"

#include <cstddef>
#include <malloc.h>

#if WEFT_ASAN || WEFT_TSAN
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace weft::test {

// The sanitizers have an allocator of their own.
inline std::size_t allocated_bytes() noexcept {
#if WEFT_ASAN || WEFT_TSAN
  return __sanitizer_get_current_allocated_bytes();
#else
  return ::mallinfo2().uordblks;
#endif
}

}  // namespace weft::test
