// ring.hpp: slow operations on files, done by io_uring.
//
// The goroutine parks until its operation is done, and neither a processor nor a thread waits with
// it. If the kernel or the build has no io_uring, there is no ring, and callers make blocking
// calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::os {

enum class operation : std::uint8_t { read, write, sync, sync_data };

struct ring_request {
  operation what = {};
  int fd = -1;
  void* data = nullptr;
  std::size_t size = 0;     // at most 1 GiB
  std::int64_t offset = 0;  // not negative: see file_core.cpp
};

// Whether there is a ring. The first call tries to make it.
bool has_ring();

// Lets the ring do `r`. Requires: has_ring(); the caller is a goroutine (of the scheduler, not of a
// simulation). Parks. Returns: what the system call would return, or a negative errno.
std::int64_t run_on_ring(const ring_request& r);

}  // namespace weft::os
