// own_descriptor.hpp: what happens when the program closes a descriptor of the runtime.
#pragma once

#include "base/fatal.hpp"

#include <cerrno>

namespace weft::base {

// To be called when a system call on one of the runtime's own descriptors has failed with `error`.
// If the descriptor was closed, or belongs to another file now, goroutines would wait for ever:
// then this ends the process.
inline void check_own_descriptor(int error) noexcept {
  if (error != EBADF && error != EINVAL && error != EOPNOTSUPP) return;
  fatal(
      "a descriptor that the runtime had opened for itself was closed; close_range() and "
      "closefrom() "
      "have to come before the first use of weft, or leave those alone that the program did not "
      "open");
}

}  // namespace weft::base
