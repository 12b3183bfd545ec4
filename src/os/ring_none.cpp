// ring_none.cpp: a build without liburing.
#include "base/check.hpp"
#include "os/ring.hpp"

namespace weft::os {

bool has_ring() { return false; }

std::int64_t run_on_ring(const ring_request&) {
  WEFT_CHECK(false);
  return -1;
}

}  // namespace weft::os
