// enter.hpp: entering and leaving the runtime, inlined: the owner's side of the seat (seat.hpp).
#pragma once

#include "sched/machine.hpp"
#include "sched/report.hpp"
#include "sched/tls.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

// Marks a stretch outside the runtime in which the caller holds one of the runtime's locks. No
// handler stops or pauses the thread there.
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
// If there is a plea to yield on the seat, the answer depends on what the caller is about to do:
//   any      yields
//   readies  yields another time, because the goroutines that it readies must not wait for its turn
//   parks    need not yield, because parking lets others run
enum class entry : std::uint8_t { any, readies, parks };
// `has_waited` is passed by callers that yield; it is set if the entry waited for a processor.
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
// Dies if the thread is inside already: then a signal handler is about to enter the runtime that it
// has interrupted. Not called on the hottest paths.
inline void expect_outside(const machine* m) noexcept {
  if (m->seat.inside_hint() || m->g == nullptr) [[unlikely]]
    die_in_handler();
}
// Leaves the runtime. Nothing of the runtime may be touched after this.
[[gnu::always_inline]] inline void leave(machine* m) noexcept { m->seat.leave(); }

}  // namespace weft::sched
