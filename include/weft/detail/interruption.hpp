// interruption.hpp: how a context ends a wait early.
//
// The waiter sits in the queue of its primitive, and its interruption is registered with the
// watched object, a context. When the context ends, it fires the interruption while holding its own
// lock:
//
//     the waiter, in its queue                fire()
//     state: idle -> armed                    state: -> fired
//       was fired: calls give_up itself         was armed: calls give_up; if that returns
//     parks                                       true, the waiter has to be readied
//     state: armed -> idle
//       was fired: waits for the lock
//
// Invariants:
//   I1  fire() touches the waiter's place in its queue only if it found `armed`, and only under the
//       lock of the watched object. A waiter that has set `armed` leaves park() only after it found
//       `armed` still set, or after it has held that lock. So the place and the primitive exist as
//       long as fire() may look at them.
//   I2  give_up takes the waiter out of its queue or refuses. So a waiter that parks is readied
//       once: by its primitive or by the thread that fires. (One that gives up before it parks is
//       not readied.)
//
// Memory order:
//   [Z1] the waiter's release of `armed` -> fire()'s acquire: who_, give_up_, argument_.
//   [Z2] fire()'s release of `fired` -> the waiter's acquire: that fire() has begun. A waiter that
//        finds `fired` calls give_up itself or waits for the lock (I1).
//   gave_up_ is guarded by the lock of the watched object.
//
// tests/model/interruption_test.cpp explores it.
#pragma once

#include <weft/detail/wait_limit.hpp>

#include <atomic>
#include <cstdint>

namespace weft::detail {

// Watched::settle() waits until no thread holds the lock under which fire() is called. Outside the
// runtime.
template <class Scheduler, class Watched>
class basic_interruption : public interrupter {
 public:
  explicit basic_interruption(Watched* watched) noexcept : watched_(watched) {}

  bool park(void* who, bool (*give_up)(void*), void* argument) noexcept override {
    who_ = static_cast<typename Scheduler::waiter>(who);
    give_up_ = give_up;
    argument_ = argument;
    std::uint32_t state = idle;
    if (!state_.compare_exchange_strong(state, armed, std::memory_order_acq_rel,  // [Z1] [Z2]
                                        std::memory_order_acquire)) {
      if (give_up(argument)) {
        Scheduler::cancel_park();
        return false;
      }
      Scheduler::park();  // another thread has taken the waiter out, and readies it
      return true;
    }
    Scheduler::park();
    state = armed;
    if (!state_.compare_exchange_strong(state, idle, std::memory_order_acq_rel,  // [Z2]
                                        std::memory_order_acquire)) {
      watched_->settle();  // I1
    }
    return !gave_up_;
  }

  // Called under the lock of the watched object. Returns: the waiter, or null if none is armed.
  typename Scheduler::waiter armed_for() const noexcept {
    return state_.load(std::memory_order_acquire) == armed ? who_ : nullptr;  // [Z1]
  }

  // Called once, under the lock of the watched object, inside the runtime. Returns: the waiter to
  // ready after the lock has been let go, or null.
  typename Scheduler::waiter fire() noexcept {
    if (state_.exchange(fired, std::memory_order_acq_rel) != armed) return nullptr;  // [Z1] [Z2]
    if (!give_up_(argument_)) return nullptr;
    gave_up_ = true;
    return who_;
  }

 private:
  enum : std::uint32_t { idle, armed, fired };

  Watched* const watched_;
  typename Scheduler::waiter who_{};
  bool (*give_up_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool gave_up_ = false;
  typename Scheduler::template atomic<std::uint32_t> state_{idle};
};

}  // namespace weft::detail
