// own_descriptor.hpp: what happens when the program closes a descriptor of the runtime.
//
// It may do so by close_range(), for example, and then open others under the same numbers. fstat()
// cannot tell whose an eventfd or an epoll instance is: they all have one inode. So the runtime
// marks its own, with a property that every open file has and that means nothing without O_ASYNC:
// which signal to send (F_SETSIG). To read the mark is the cheapest of system calls.
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

// Marks a new descriptor as the runtime's own. Keeps errno.
void mark_own_descriptor(int fd) noexcept;

// Whether the number leads to a file with the mark. If that cannot be found out, because a sandbox
// refuses the call: whether it leads to any file. Keeps errno.
bool is_own_descriptor(int fd) noexcept;

}  // namespace weft::base
