// interrupt.cpp: the bell that the poller watches. Its contract is in interrupt.hpp.
#include "base/interrupt.hpp"

#include "base/bell.hpp"

#include <sys/eventfd.h>

namespace weft::base {
namespace {

constinit bell the_bell;  // made before the first thread sleeps in the poller

}  // namespace

int make_interrupt_descriptor() noexcept { return the_bell.make(EFD_NONBLOCK | EFD_CLOEXEC); }
void close_interrupt_descriptor() noexcept { the_bell.close(); }

// The poller watches the eventfd edge-triggered: each ring is an event, and no thread reads the
// counter, which would be full after 2^64 rings.
void interrupt_poller() noexcept { the_bell.ring(); }

}  // namespace weft::base
