// refused.hpp: what the kernel says when it does not do a thing, where another way may do.
#pragma once

#include <cerrno>
#include <system_error>

namespace weft::io {

// Of splice, sendfile and copy_file_range. A file system or a kind of file does not have them
// (EINVAL, EOPNOTSUPP, EXDEV), nor has a kernel (ENOSYS), or a sandbox does not let us (EPERM,
// EACCES). EPERM may be meant, of a file that nobody may change: reading and writing say so again.
constexpr bool is_refused(int error) noexcept {
  return error == EINVAL || error == EOPNOTSUPP || error == EXDEV || error == ENOSYS ||
         error == EPERM || error == EACCES;
}
inline bool is_refused(const std::error_code& e) noexcept {
  return e.category() == std::generic_category() && is_refused(e.value());
}

}  // namespace weft::io
