// run_queue.hpp: the goroutines that one processor runs next: a ring of 256 places, pushed at the
// back.
//
// A processor has two rings. Goroutines that have yielded, or that were moved here from elsewhere,
// go into `ready` and leave it at the front: first come, first served. Goroutines that have never
// run go into `fresh` and leave it at the back, newest first. A tree of goroutines is then walked
// depth first, on few stacks and warm caches, instead of being unrolled in full. (skynet at one
// processor: 48 ms against 416 with one FIFO for all.) Thieves and the overflow take the oldest
// from the front of either: those are the largest pieces of a tree, and have waited longest.
//
// All of it is guarded by the processor's seat (seat.hpp), so the slots are plain. front, back and
// epoch are atomics only so that a thief may look at them from outside, as hints.
//
// Invariants:
//   I1  front <= back <= front + capacity; 64 bits, begun in the middle, so neither wraps.
//   I2  A slot in [front, back) holds a runnable goroutine that is in no other queue.
//   I3  epoch grows whenever the ring becomes empty, so a thief that sees front and epoch unchanged
//       over some time knows that the same goroutine has been the oldest all the while.
#pragma once

#include "base/check.hpp"
#include "base/membarrier.hpp"
#include "sched/goroutine_list.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

class run_queue {
 public:
  static constexpr std::uint64_t capacity = 256;

  // What a thief sees from outside.
  struct look {
    std::uint64_t front, back, epoch;
    std::uint64_t size() const noexcept { return back > front ? back - front : 0; }
  };
  look look_hint() const noexcept { return {load(front_), load(back_), load(epoch_)}; }

  std::uint64_t size() const noexcept { return load(back_) - load(front_); }
  bool empty() const noexcept { return load(back_) == load(front_); }
  bool full() const noexcept { return size() == capacity; }

  void push_back(goroutine* g) noexcept {
    WEFT_ASSERT(!full());
    const std::uint64_t back = load(back_);
    slots_[back % capacity] = g;
    store(back_, back + 1);
  }

  // Returns: false, and does nothing, if the ring is full.
  bool try_push_back(goroutine* g) noexcept {
    const std::uint64_t back = load(back_);
    if (back - load(front_) == capacity) [[unlikely]]
      return false;
    slots_[back % capacity] = g;
    store(back_, back + 1);
    return true;
  }

  // For a goroutine that is older than all in the ring.
  void push_front(goroutine* g) noexcept {
    WEFT_ASSERT(!full());
    const std::uint64_t front = load(front_) - 1;
    slots_[front % capacity] = g;
    store(front_, front);
  }

  goroutine* pop_back() noexcept {
    const std::uint64_t back = load(back_);
    const std::uint64_t front = load(front_);
    if (back == front) return nullptr;
    goroutine* const g = slots_[(back - 1) % capacity];
    store(back_, back - 1);
    if (back - 1 == front) store(epoch_, load(epoch_) + 1);
    return g;
  }

  goroutine* pop_front() noexcept {
    const std::uint64_t front = load(front_);
    const std::uint64_t back = load(back_);
    if (front == back) return nullptr;
    goroutine* const g = slots_[front % capacity];
    store(front_, front + 1);
    if (front + 1 == back) store(epoch_, load(epoch_) + 1);
    return g;
  }

  // Returns: for how many of the newest, without a gap, `f` holds.
  template <class F>
  std::uint64_t count_newest(F f) const noexcept {
    const std::uint64_t back = load(back_);
    std::uint64_t n = 0;
    while (n != back - load(front_) && f(slots_[(back - n - 1) % capacity])) ++n;
    return n;
  }

  // Moves the newest `n` to the end of `out`, in order. Requires: there are that many.
  void take_newest(std::uint64_t n, goroutine_list& out) noexcept {
    WEFT_ASSERT(n <= size());
    const std::uint64_t back = load(back_);
    for (std::uint64_t i = back - n; i != back; ++i) out.push_back(slots_[i % capacity]);
    store(back_, back - n);
    if (back - n == load(front_)) store(epoch_, load(epoch_) + 1);
  }

  // The goroutines that pop_back and pop_front would return, or null.
  goroutine* peek_back() const noexcept {
    return empty() ? nullptr : slots_[(load(back_) - 1) % capacity];
  }
  goroutine* peek_front() const noexcept {
    return empty() ? nullptr : slots_[load(front_) % capacity];
  }

 private:
  // relaxed: guarded by the seat; other threads read hints.
  static std::uint64_t load(const std::atomic<std::uint64_t>& a) noexcept {
    return a.load(std::memory_order_relaxed);
  }
  // hot_store: a producer's push is the store of [W1] (idle_state.hpp). It is made visible before
  // the producer looks whether a processor listens.
  static void store(std::atomic<std::uint64_t>& a, std::uint64_t v) noexcept {
    a.store(v, base::hot_store_order);
  }

  static constexpr std::uint64_t middle = std::uint64_t{1} << 62;  // neither end is ever reached
  std::atomic<std::uint64_t> front_{middle};
  std::atomic<std::uint64_t> back_{middle};
  std::atomic<std::uint64_t> epoch_{0};
  goroutine* slots_[capacity];
};

}  // namespace weft::sched
