// monitor_sleep.hpp: how the monitor sleeps, and how other threads wake it.
//
// One word (scheduler::monitor_word) says what the monitor does, and is the futex it sleeps on:
//
//   awake       the monitor looks, or sleeps lightly, until a time that it has set itself
//   poked       the monitor is to look at once
//   deep_sleep  all processors are idle: the monitor sleeps until a machine wakes up
//   in_poller   the monitor sleeps in the poller
//
// [J1] Store-then-load, seq_cst: a machine leaves the idle list, then looks at the word; the
// monitor writes the word, then looks whether all are idle. The lock's exchange and the seq_cst
// store order both sides.
// [J2] poke_monitor's exchange -> the monitor's read of the word: what the poke is about. Both
// sides change the word by read-modify-write operations, so the poker sees where the monitor
// sleeps, or the monitor sees the poke.
// [J3] The monitor says until when it sleeps, seq_cst, and then looks at the timers; a thread sets
// a timer, and then looks until when the monitor sleeps. The thread's load is only a hint: a timer
// that both sides have missed fires at the monitor's next round.
#pragma once

#include "sched/scheduler.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

// --- for all other threads ---------------------------------------------------------------------

void note_activity() noexcept;  // wakes the monitor from its deep sleep
void poke_monitor() noexcept;   // makes the monitor look at once
// A timer was set for `when_ns`, perhaps on a processor that will not look at it in time.
void tell_monitor_of_timer(std::int64_t when_ns) noexcept;
// Ends the listening of the monitor. It listens when it lies down for long while all processors are
// busy, and relies on being woken when there is more work than they do. Requires: the lock.
// Returns: whether the monitor listened.
bool stop_monitor_listening_locked() noexcept;

// Tells the monitor to look whether any goroutine can still run (deadlock.cpp). Called by each
// thread that lies down until it is woken.
void tell_monitor() noexcept;
inline void suspect_deadlock() noexcept {
  if (the_scheduler.runs.load(std::memory_order_relaxed) != 0) tell_monitor();
}

// --- for the monitor itself --------------------------------------------------------------------

// Whether all processors are idle. False if one has no thread: it may have work waiting, or timers.
bool all_idle_hint() noexcept;
// Sleeps until `deadline_ns`, or until poked.
void sleep_lightly(std::int64_t deadline_ns) noexcept;
// Like sleep_lightly(), in the poller. Requires: try_attend() has returned true.
void sleep_in_poller(std::int64_t deadline_ns) noexcept;
// Sleeps until a machine wakes up, until poked, or until `deadline_ns`.
void sleep_deeply(std::int64_t deadline_ns) noexcept;
// Polls, and leaves the poller. Requires: try_attend() has returned true.
void poll_until(std::int64_t deadline_ns) noexcept;
// A thread that makes work wakes the monitor from now on. Returns: false if work waits already.
bool start_listening() noexcept;
// The monitor has slept, and looks from now on.
void end_poke() noexcept;

}  // namespace weft::sched
