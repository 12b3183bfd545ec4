// own_descriptor.cpp: the mark. own_descriptor.hpp says what it is for.
#include "base/own_descriptor.hpp"

#include <atomic>
#include <fcntl.h>

namespace weft::base {
namespace {

// A signal that belongs to the C library: no program has its files send it.
constexpr int mark = 33;

// relaxed: set before the descriptor that could not be marked is used.
constinit std::atomic<bool> can_mark{true};

}  // namespace

void mark_own_descriptor(int fd) noexcept {
  const int saved = errno;
  if (::fcntl(fd, F_SETSIG, mark) != 0 || ::fcntl(fd, F_GETSIG) != mark) {
    can_mark.store(false, std::memory_order_relaxed);
  }
  errno = saved;
}

bool is_own_descriptor(int fd) noexcept {
  const int saved = errno;
  const int found = ::fcntl(fd, F_GETSIG);
  const int error = errno;
  errno = saved;
  if (found < 0) return error != EBADF;
  return found == mark || !can_mark.load(std::memory_order_relaxed);
}

}  // namespace weft::base
