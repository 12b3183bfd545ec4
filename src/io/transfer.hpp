// transfer.hpp: send() and recv() without the C library's support for pthread_cancel().
//
// In the C library each of them is a cancellation point, which takes two calls and four locked
// instructions: some 3 % of what an echo server spends on a request. Goroutines are never cancelled
// that way. Sanitizer builds still call the C library, whose functions the sanitizers intercept: so
// they see which memory is written and which threads synchronise.
#pragma once

#include "base/sanitizer.hpp"

#include <cstddef>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace weft::io {

// The kernel transfers no more than about 2 GiB at once.
inline constexpr std::size_t at_once_max = std::size_t{1} << 30;

inline ssize_t send(int fd, const void* from, std::size_t n, int flags) noexcept {
  if (base::sanitizer::is_watched()) return ::send(fd, from, n, flags);
  return ::syscall(SYS_sendto, fd, from, n, flags, nullptr, 0);
}

inline ssize_t receive(int fd, void* into, std::size_t n, int flags) noexcept {
  if (base::sanitizer::is_watched()) return ::recv(fd, into, n, flags);
  return ::syscall(SYS_recvfrom, fd, into, n, flags, nullptr, nullptr);
}

}  // namespace weft::io
