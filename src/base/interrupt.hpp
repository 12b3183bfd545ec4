// interrupt.hpp: wakes the one thread that sleeps in the poller (sched/poller.hpp) instead of on a
// futex: an eventfd, which the poller watches like any other descriptor.
#pragma once

namespace weft::base {

// Makes the descriptor, once. Returns: the descriptor, or -1.
int make_interrupt_descriptor() noexcept;
// For a poller that could not be made.
void close_interrupt_descriptor() noexcept;

// Wakes the thread that sleeps in the poller. If none does, the next thread that wants to sleep
// there returns at once. Keeps errno.
void interrupt_poller() noexcept;

}  // namespace weft::base
