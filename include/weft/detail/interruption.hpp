// interruption.hpp: waits that something else, a context, may end.
//
// The waiter sits in the queue of its primitive, and its interruption is known to what it watches.
// When that ends it fires the interruption, holding its own lock:
//
//     the waiter, in its queue                fire()
//     state: idle -> armed                    state: -> fired
//       was fired: calls give_up itself         was armed: give_up; yes: the waiter is to be
//       readied
//     parks
//     state: armed -> idle
//       was fired: waits for the lock
//
// Invariants:
//   I1  fire() touches the waiter's place in its queue only if it found `armed`, and under the lock
//       of what is watched. The waiter leaves park() only after it found `armed` still there, or
//       after it has held that lock: so the place and the primitive are there for as long as
//       somebody may look at them.
//   I2  give_up takes the waiter out or says no, so it is readied once: by its primitive or by
//       whoever fires.
//
// Memory order:
//   [Z1] the waiter's release of `armed` -> fire()'s acquire: who_, give_up_, argument_.
//   gave_up_ is guarded by the lock of what is watched.
//
// tests/model/interruption_test.cpp walks it.
#pragma once

#include <weft/detail/patience.hpp>

#include <atomic>
#include <cstdint>

namespace weft::detail {

// Watched::settle() waits until nobody holds the lock under which fire() is called; outside the
// runtime.
template <class Seam, class Watched>
class basic_interruption : public interrupter {
 public:
  explicit basic_interruption(Watched* watched) noexcept : watched_(watched) {}

  bool park(void* who, bool (*give_up)(void*), void* argument) noexcept override {
    who_ = static_cast<typename Seam::waiter>(who);
    give_up_ = give_up;
    argument_ = argument;
    std::uint32_t state = idle;
    if (!state_.compare_exchange_strong(state, armed, std::memory_order_acq_rel,  // [Z1]
                                        std::memory_order_acquire)) {
      if (give_up(argument)) {
        Seam::cancel_park();
        return false;
      }
      Seam::park();  // somebody took it out before, and readies it
      return true;
    }
    Seam::park();
    state = armed;
    if (!state_.compare_exchange_strong(state, idle, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
      watched_->settle();  // I1
    }
    return !gave_up_;
  }

  // Under the lock of what is watched. Returns: who waits, or null.
  typename Seam::waiter armed_for() const noexcept {
    return state_.load(std::memory_order_acquire) == armed ? who_ : nullptr;
  }

  // Called once, under the lock of what is watched, inside the runtime. Returns: whom to ready
  // after the lock has been let go, or null.
  typename Seam::waiter fire() noexcept {
    if (state_.exchange(fired, std::memory_order_acq_rel) != armed) return nullptr;  // [Z1]
    if (!give_up_(argument_)) return nullptr;
    gave_up_ = true;
    return who_;
  }

 private:
  enum : std::uint32_t { idle, armed, fired };

  Watched* const watched_;
  typename Seam::waiter who_{};
  bool (*give_up_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool gave_up_ = false;
  typename Seam::template atomic<std::uint32_t> state_{idle};
};

}  // namespace weft::detail
