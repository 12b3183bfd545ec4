#include "base/interrupt.hpp"

#include "base/own_descriptor.hpp"

#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

namespace weft::base {
namespace {

int bell = -1;  // written before the first thread sleeps in the poller

}  // namespace

int make_interrupt_descriptor() noexcept {
  bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return bell;
}

void interrupt_poller() noexcept {
  const int saved = errno;
  // Watched edge-triggered: each write is an event, and nobody reads. The counter would be full
  // after 2^64 of them.
  const std::uint64_t one = 1;
  if (::write(bell, &one, sizeof one) < 0) check_own_descriptor(errno);
  errno = saved;
}

}  // namespace weft::base
