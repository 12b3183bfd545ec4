// bell.cpp: making an eventfd, and ringing it. bell.hpp says what a bell is for.
#include "base/bell.hpp"

#include "base/own_descriptor.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace weft::base {
namespace {

// The numbers of the bells that are in use; 0: none. relaxed: each is compared by itself.
constinit std::atomic<int> numbers[4];

void forget(int number) noexcept {
  for (std::atomic<int>& n : numbers) {
    int expected = number;
    if (number > 0 && n.compare_exchange_strong(expected, 0, std::memory_order_relaxed)) return;
  }
}

// Ends the process if that number is another bell's, which the program has closed then.
void remember(int number) noexcept {
  for (const std::atomic<int>& n : numbers) {
    if (n.load(std::memory_order_relaxed) == number) check_own_descriptor(EBADF);
  }
  for (std::atomic<int>& n : numbers) {
    int expected = 0;
    if (n.compare_exchange_strong(expected, number, std::memory_order_relaxed)) return;
  }
}

}  // namespace

int bell::make(int flags) noexcept {
  fd_ = ::eventfd(0, flags);
  if (fd_ > 0) remember(fd_);
  if (fd_ >= 0) mark_own_descriptor(fd_);
  return fd_;
}

void bell::close() noexcept {
  forget(fd_);
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void bell::ring() const noexcept {
  const int saved = errno;
  if (!is_own_descriptor(fd_)) check_own_descriptor(EBADF);
  const std::uint64_t one = 1;
  // EAGAIN: the counter is full, so the bell has been rung.
  while (::write(fd_, &one, sizeof one) < 0 && errno != EAGAIN) {
    if (errno != EINTR) {
      check_own_descriptor(errno);
      break;
    }
  }
  errno = saved;
}

}  // namespace weft::base
