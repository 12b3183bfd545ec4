// inside.hpp: entering and leaving the runtime, inlined, for primitives whose fast paths take a few
// nanoseconds. Otherwise the same as enter_runtime() and leave_runtime() of weft/detail/park.hpp.
#pragma once

#include "sched/enter.hpp"

namespace weft::sched {

class inside {
 public:
  [[gnu::always_inline]] inside() noexcept : m_(this_machine()) {
    if (m_ == nullptr) return;
    expect_outside(m_);  // a handler could wait for a lock that its own thread holds inside
    m_ = enter(m_);
  }
  inside(const inside&) = delete;
  inside& operator=(const inside&) = delete;

  machine* here() const noexcept { return m_; }

  // To be called once, unless the caller parks; parking leaves, too.
  [[gnu::always_inline]] void leave() noexcept {
    if (m_ != nullptr) sched::leave(m_);
  }

 private:
  machine* m_;  // null on a plain thread
};

// Holds a lock inside the runtime, where the monitor does not pause the holder.
template <class Lock>
class locked_inside {
 public:
  explicit locked_inside(Lock& l) noexcept : lock_(l) { lock_.lock(); }
  locked_inside(const locked_inside&) = delete;
  locked_inside& operator=(const locked_inside&) = delete;
  ~locked_inside() {
    lock_.unlock();
    in_.leave();
  }

 private:
  inside in_;
  Lock& lock_;
};

}  // namespace weft::sched
