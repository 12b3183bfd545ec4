// own_descriptor.hpp: the descriptors that the runtime opened for itself, and lost.
#pragma once

#include "base/fatal.hpp"

#include <cerrno>

namespace weft::base {

// A system call on a descriptor of the runtime's own has failed with `error`. If the descriptor is
// closed, or is another file's by now, goroutines would wait for ever: that ends the process.
inline void check_own_descriptor(int error) noexcept {
  if (error != EBADF && error != EINVAL && error != EOPNOTSUPP) return;
  fatal(
      "a descriptor that the runtime had opened for itself was closed; close_range() and "
      "closefrom() "
      "have to come before the first use of weft, or leave those alone that the program did not "
      "open");
}

}  // namespace weft::base
