// monitor_pace.hpp: how long the monitor sleeps between two looks; monitor.cpp has the reasons.
#pragma once

#include "sched/watch.hpp"

#include <cstdint>

namespace weft::sched {

class monitor_pace {
 public:
  static constexpr std::int64_t least_ns = 20'000;
  static constexpr std::int64_t lent_ns = 100'000;
  static constexpr std::int64_t busy_ns = 500'000;
  static constexpr std::int64_t smooth_ns = 2'000'000;
  static constexpr std::int64_t smooth_after_ns = 100'000'000;
  static constexpr std::int64_t steady_ns = 5'000'000;
  static constexpr std::int64_t steady_after_ns = 1'000'000'000;
  static constexpr std::int64_t calm_ns = 10'000'000;
  static constexpr int eager_looks_max = 50;

  void begin(std::int64_t now_ns) noexcept { acted_ns_ = now_ns; }
  // To be called after a look.
  void note(const watch::outcome& seen, std::int64_t now_ns) noexcept;
  // To be called while all processors are idle. Returns: whether they have been idle for a while:
  // they were at the last look, and have picked nothing since.
  bool note_idle(std::int64_t now_ns) noexcept;
  // To be called when the monitor has woken from its deep sleep.
  void reset() noexcept;

  std::int64_t period_ns() const noexcept { return period_ns_; }
  // Whether the period is so long that a thread which makes work has to wake the monitor.
  bool is_long() const noexcept { return is_calm_ && period_ns_ > busy_ns; }

 private:
  std::int64_t busy_period_ns(std::int64_t now_ns) const noexcept;

  int looks_ = 0;
  int eager_looks_ = eager_looks_max;
  std::int64_t acted_ns_ = 0;
  std::int64_t period_ns_ = least_ns;
  bool is_calm_ = false;
  bool was_idle_ = false;
  std::uint64_t idle_picks_ = 0;  // of all processors, when all were last seen idle
};

}  // namespace weft::sched
