// monitor_sleep.hpp: how the monitor sleeps, and how everybody else wakes it.
//
// What it does is in one word (scheduler::monitor_word), on which it sleeps:
//
//   awake       it looks, or sleeps lightly, until a time that it has set itself
//   poked       it is to look at once
//   deep_sleep  all processors are idle: it sleeps until a machine wakes up
//   in_poller   it sleeps in the poller
//
// [J1] Store-then-load, seq_cst: a machine leaves the idle list, then looks at the word; the
// monitor writes the word, then looks whether all are idle. The lock's exchange and the seq_cst
// store order both sides.
#pragma once

#include "sched/scheduler.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

// --- everybody else ----------------------------------------------------------------------------

void note_activity() noexcept;  // wakes the monitor from its deep sleep
void poke_monitor() noexcept;   // makes it look at once
// A timer was set for then, perhaps on a processor that will not look at it in time.
void tell_monitor_of_timer(std::int64_t when_ns) noexcept;
// The monitor lies down for long while all processors are busy, and relies on being told when there
// is more to do than they do. Requires: the lock. Returns: whether it did.
bool stop_monitor_listening_locked() noexcept;

// The monitor is to look whether anybody can still run (deadlock.cpp). Called by each thread that
// lies down until it is woken.
void tell_monitor() noexcept;
inline void suspect_deadlock() noexcept {
  if (the_scheduler.runs.load(std::memory_order_relaxed) != 0) tell_monitor();
}

// --- the monitor -------------------------------------------------------------------------------

// Whether all processors are idle. Those without a thread may have work waiting, or timers.
bool all_idle_hint() noexcept;
// Until `deadline_ns`, or until poked.
void sleep_lightly(std::int64_t deadline_ns) noexcept;
// The same, in the poller. Requires: attends.
void sleep_in_poller(std::int64_t deadline_ns) noexcept;
// Until a machine wakes up, until poked, or until `deadline_ns`.
void sleep_deeply(std::int64_t deadline_ns) noexcept;
// Collects what the poller has. Requires: attends; it no longer does afterwards.
void poll_until(std::int64_t deadline_ns) noexcept;
// Whoever makes work wakes the monitor from now on. Returns: false if there is some already.
bool start_listening() noexcept;
// It has slept, and looks from now on.
void end_poke() noexcept;

}  // namespace weft::sched
