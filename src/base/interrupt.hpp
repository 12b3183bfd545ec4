// interrupt.hpp: wakes the one thread that sleeps in the poller (sched/poller.hpp) instead of on a
// futex: an eventfd, which the poller watches like any other descriptor.
#pragma once

namespace weft::base {

// Makes the descriptor, once. Returns: it, or -1.
int make_interrupt_descriptor() noexcept;

// Whoever sleeps in the poller wakes, or the next one who wants to sleep there does not. Keeps
// errno.
void interrupt_poller() noexcept;

}  // namespace weft::base
