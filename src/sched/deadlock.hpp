// deadlock.hpp: whether no goroutine will ever run again; deadlock.cpp has the essay.
#pragma once

#include "base/clock.hpp"

#include <cstdint>

namespace weft::sched {

// Returns: true if no goroutine can run any more. Then that is so for ever.
bool is_deadlocked() noexcept;
// Whether it is worth calling is_deadlocked(): cheap, and true if it could return true.
bool looks_deadlocked() noexcept;
// Whether the process has threads that are not the runtime's and do not wait in weft.
bool has_foreign_threads() noexcept;

// When the monitor looks for a deadlock: first_ns after a suspicion (suspect_deadlock() in
// monitor_sleep.hpp), then each time after twice as long, while all processors are idle.
class deadlock_watch {
 public:
  // Returns: when the next look is due.
  std::int64_t note_suspicion(std::int64_t now_ns) noexcept;
  void look(std::int64_t now_ns) noexcept;

 private:
  static constexpr std::int64_t first_ns = 10'000'000;
  static constexpr std::int64_t most_ns = 2'000'000'000;

  bool noted_ = false;  // `suspicious` stays set until the look
  std::int64_t due_ns_ = base::never;
  std::int64_t wait_ns_ = first_ns;
};

}  // namespace weft::sched
