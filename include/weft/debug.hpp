// weft/debug.hpp: counters and gauges that show what the scheduler does.
#pragma once

#include <weft/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::debug {

// One counter (its value is counted from the start of the process) or gauge (its value is that of
// now).
struct stat {
  std::string_view name;
  std::uint64_t value;
};

// What stats() returns: counters and gauges, in a fixed order.
class scheduler_stats {
 public:
  explicit scheduler_stats(std::vector<stat> all) noexcept
      : all_(static_cast<std::vector<stat>&&>(all)) {}

  // Returns: the value of the counter or gauge called `name`. Throws: std::out_of_range if there is
  // none.
  WEFT_API std::uint64_t operator[](std::string_view name) const;

  auto begin() const noexcept { return all_.begin(); }
  auto end() const noexcept { return all_.end(); }
  std::size_t size() const noexcept { return all_.size(); }

 private:
  std::vector<stat> all_;
};

// Reads the counters and gauges one after the other, so their values belong to slightly different
// instants.
//
// gauges    goroutines, processors, processors.idle, machines, machines.spare, machines.paused
// handoff.  a goroutine gave its processor away: blocking (announced), bound (to its thread, and
//           waiting), granted (to the thread that another goroutine is bound to)
// detach.   a processor was taken away: call (announced short call), blocked, hog, resize; failed
// loan.     a processor was borrowed for a goroutine that a timer or an event woke: made,
//           repeated, returned
// preempt.  CPU timers: armed; stale, deferred, refused when they went off
// yield.    a hog that uses weft was asked to let others run: asked, done
// pause.    a hog's thread was stopped: hog, unattached (its processor had gone before)
// resume    the stopped thread went on
// return.   a goroutine came back without a processor: loan, same, other, queued
// idle.overlooked  a goroutine waited beside an idle processor
// monitor.rounds, stall.reports
WEFT_API scheduler_stats stats();

}  // namespace weft::debug
