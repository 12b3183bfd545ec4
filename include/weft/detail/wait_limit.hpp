// wait_limit.hpp: how long a wait may last: for ever, until a time, or until an interruption.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/park.hpp>

#include <cstdint>

namespace weft::detail {

inline constexpr std::int64_t no_deadline = INT64_MAX;

// Ends a wait from outside, when the primitive has not ended it: see interruption.hpp.
class interrupter {
 public:
  interrupter(const interrupter&) = delete;
  interrupter& operator=(const interrupter&) = delete;

  // Parks like park_until, but calls give_up when something interrupts. `who` is what prepare_park
  // returned.
  virtual bool park(void* who, bool (*give_up)(void*), void* argument) noexcept = 0;

 protected:
  interrupter() = default;
  ~interrupter() = default;
};

// How long one wait may last.
class wait_limit {
 public:
  // The wait lasts until the deadline, or for ever if that is no_deadline.
  constexpr explicit(false) wait_limit(std::int64_t deadline_ns) noexcept
      : deadline_ns_(deadline_ns) {}
  explicit wait_limit(interrupter& by) noexcept : by_(&by) {}

  // Parks until ready(), or until the limit comes and give_up(argument) returns true. Requires:
  // prepare_park, which returned `who`. Returns: false if the caller gave up.
  template <class Scheduler>
  bool park(typename Scheduler::waiter who, bool (*give_up)(void*), void* argument) const noexcept {
    if (by_ != nullptr) return by_->park(who, give_up, argument);
    if (deadline_ns_ != no_deadline) return Scheduler::park_until(deadline_ns_, give_up, argument);
    Scheduler::park();
    return true;
  }

 private:
  std::int64_t deadline_ns_ = no_deadline;
  interrupter* by_ = nullptr;
};

}  // namespace weft::detail
