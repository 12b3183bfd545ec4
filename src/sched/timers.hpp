// timers.hpp: things to do at a time. One 4-ary heap per processor, with its own lock, so that any
// machine may run the timers of a processor that is busy, idle or retired.
//
// A timer is a small object of its user's, in at most one heap. It fires under the heap's lock; so
// disarm(), which takes the lock too, returns only when the timer is neither armed nor firing, and
// its memory may go. What fires must be short, inside the runtime and must not touch a heap.
//
// Memory order:
//   earliest_ is a relaxed hint beside the lock: whoever arms a timer publishes it, and an idle
//   machine reads it after the heavy barrier of [W1].
#pragma once

#include "base/clock.hpp"
#include "base/lock.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::sched {

class timer_heap;

struct timer {
  void (*fire)(timer*) noexcept = nullptr;
  void* argument = nullptr;
  bool (*wakes)(const timer*) noexcept = nullptr;  // whether anybody waits for it; null: yes
  std::int64_t when_ns = 0;                        // guarded by the heap's lock while armed
  std::int64_t period_ns = 0;  // immutable while armed; if not 0 it stays armed when it fires
  std::size_t place = 0;       // guarded by the heap's lock: index in the heap plus 1; 0: not armed
  timer_heap* heap = nullptr;  // set by arm()
};

class timer_heap {
 public:
  // Returns: false if there is no memory to keep one more timer.
  bool arm(timer& t, std::int64_t when_ns) noexcept;

  // Returns: true if the timer was taken out before it fired.
  static bool disarm(timer& t) noexcept;

  // Fires what is due. Returns: how many.
  std::size_t run(std::int64_t now_ns) noexcept;

  // Whether any timer would let anybody go on.
  bool could_wake() noexcept;

  // Takes the first timer out, due or not. Returns: null if there is none.
  timer* drop_first() noexcept;

  // Drops all timers, which must not be disarmed afterwards, and the memory they were kept in.
  void clear() noexcept;

  // When the first timer is due, or `never`. A hint: may be stale when you read it.
  std::int64_t earliest_hint() const noexcept { return earliest_.load(std::memory_order_relaxed); }

 private:
  struct entry {
    std::int64_t when_ns;
    timer* what;
  };

  bool grow_locked() noexcept;
  void place_locked(std::size_t at, entry e) noexcept;
  void up_locked(std::size_t at, entry e) noexcept;
  void down_locked(std::size_t at, entry e) noexcept;
  void remove_locked(std::size_t at) noexcept;
  void publish_locked() noexcept;

  base::spin_lock lock_;
  entry* entries_ = nullptr;  // guarded by lock_; a mapping of its own
  std::size_t size_ = 0;      // guarded by lock_
  std::size_t capacity_ = 0;  // guarded by lock_
  std::atomic<std::int64_t> earliest_{base::never};
};

}  // namespace weft::sched
