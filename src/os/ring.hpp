// ring.hpp: operations on files that may take their time, done by io_uring.
//
// A goroutine that has an operation done parks until it is; neither its processor nor a thread
// waits with it. Where the kernel or the build has no io_uring there is no ring, and callers make
// blocking calls.
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

// Whether there is a ring. The first call finds out.
bool has_ring();

// Has it done. Requires: has_ring(); the caller is a goroutine (of the scheduler, not of a
// simulation). Parks. Returns: what the system call would return, or an errno, negative.
std::int64_t run_on_ring(const ring_request& r);

}  // namespace weft::os
