// enter.hpp: entering and leaving the runtime, inlined: the owner's side of the seat (seat.hpp).
#pragma once

#include "sched/machine.hpp"
#include "sched/report.hpp"
#include "sched/tls.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

// Marks a stretch outside the runtime in which the caller holds one of its locks, so that nobody
// stops or pauses it there.
class lock_outside {
 public:
  lock_outside() noexcept : m_(this_machine()) { add(1); }
  lock_outside(const lock_outside&) = delete;
  lock_outside& operator=(const lock_outside&) = delete;
  ~lock_outside() { add(-1u); }

 private:
  void add(std::uint32_t n) noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // handlers run on this thread
    if (m_ != nullptr) {
      m_->holds_lock.store(m_->holds_lock.load(std::memory_order_relaxed) + n,
                           std::memory_order_relaxed);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  machine* const m_;
};

// Enters the runtime. Requires: the caller is a goroutine. May park, if the processor was taken.
// What the caller is about to do decides about a plea to yield on its seat: it yields; it is going
// to ready others, which must not wait for its next turn, and yields another time; it parks, which
// will do.
enum class entry : std::uint8_t { any, readies, parks };
// Who passes `has_waited` yields; it is set if that meant to wait for a processor.
[[nodiscard]] machine* enter_slow(machine* m, entry then = entry::any,
                                  bool* has_waited = nullptr) noexcept;
[[gnu::always_inline, nodiscard]] inline machine* enter(machine* m) noexcept {
  if (!m->seat.enter()) [[unlikely]]
    m = enter_slow(m);
  return m;
}
[[nodiscard]] inline machine* enter_to_ready(machine* m) noexcept {
  return m->seat.enter() ? m : enter_slow(m, entry::readies);
}
[[nodiscard]] inline machine* enter_to_park(machine* m) noexcept {
  return m->seat.enter() ? m : enter_slow(m, entry::parks);
}
[[nodiscard]] inline machine* enter() noexcept { return enter(this_machine()); }
// A thread that is about to enter and is inside already runs a signal handler. Not looked at on the
// hottest paths.
inline void expect_outside(const machine* m) noexcept {
  if (m->seat.inside_hint() || m->g == nullptr) [[unlikely]]
    die_in_handler();
}
// Leaves it. Nothing of the runtime may be touched after this.
[[gnu::always_inline]] inline void leave(machine* m) noexcept { m->seat.leave(); }

}  // namespace weft::sched
