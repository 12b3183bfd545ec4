// timers.hpp: things to do at a time. There is one 4-ary heap per processor, with its own lock, so
// that any machine may fire the timers of a processor that is busy, idle or retired.
//
// A timer fires under its heap's lock. So disarm(), which takes the lock too, returns only when the
// timer is neither armed nor firing, and the timer's memory may go. The function that fires must be
// short, is inside the runtime, and must not touch a heap.
//
// To arm a timer never fails, because a goroutine that wants to sleep could do nothing about it. If
// there is no memory for the heap to grow, timers that do not fit are kept in timer_spill.hpp,
// which needs none.
//
// The heap keeps its address space when it has become small, but gives back the pages at its end, a
// piece for each piece's worth of timers that go. So a burst of a million sleepers leaves nothing
// behind, and no timer pays for a large piece. If the heap grows again, the kernel provides pages
// again; that does not fail.
//
// Memory order:
//   earliest_ is a relaxed hint beside the lock: a thread that arms a timer publishes it, and a
//   machine that goes to sleep reads it after the heavy barrier of [W1].
#pragma once

#include "base/clock.hpp"
#include "base/lock.hpp"
#include "sched/timer_spill.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::sched {

class timer_heap {
 public:
  timer_heap() = default;
  // For tests: as if there were memory for only `most` timers.
  explicit timer_heap(std::size_t most) noexcept : most_(most) {}

  void arm(timer& t, std::int64_t when_ns) noexcept;

  // Returns: true if the timer was taken out before it fired.
  static bool disarm(timer& t) noexcept;

  // Fires due timers. Returns: how many.
  std::size_t run(std::int64_t now_ns) noexcept;

  // Whether any timer would let a goroutine go on.
  bool could_wake() noexcept;

  // Takes the first timer out, due or not. Returns: null if there is none.
  timer* drop_first() noexcept;

  // Drops all timers, and the memory they were kept in. The timers must not be disarmed afterwards.
  void clear() noexcept;

  // When the first timer is due, or `never`. A hint: may be stale when you read it.
  std::int64_t earliest_hint() const noexcept { return earliest_.load(std::memory_order_relaxed); }

 private:
  struct entry {
    std::int64_t when_ns;
    timer* what;
  };

  timer* first_locked() const noexcept;
  void insert_locked(timer& t) noexcept;
  void take_out_locked(timer& t) noexcept;
  bool grow_locked() noexcept;
  void place_locked(std::size_t at, entry e) noexcept;
  void up_locked(std::size_t at, entry e) noexcept;
  void down_locked(std::size_t at, entry e) noexcept;
  void remove_locked(std::size_t at) noexcept;
  void publish_locked() noexcept;
  void give_back_locked() noexcept;

  base::spin_lock lock_;
  entry* entries_ = nullptr;  // guarded by lock_; a mapping of its own
  std::size_t size_ = 0;      // guarded by lock_
  std::size_t capacity_ = 0;  // guarded by lock_
  std::size_t touched_ = 0;   // guarded by lock_; the entries behind these have no memory
  timer_spill spill_;         // guarded by lock_
  const std::size_t most_ = SIZE_MAX;
  std::atomic<std::int64_t> earliest_{base::never};
};

}  // namespace weft::sched
