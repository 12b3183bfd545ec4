// lane.hpp: a queue of any length that belongs to one processor, first in, first out. Goroutines
// are linked through their own records; the counts are for threads that look from outside.
//
// Guarded by the processor's seat (seat.hpp), like the run queues.
#pragma once

#include "base/membarrier.hpp"
#include "sched/goroutine_list.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

class lane {
 public:
  // What a thief sees from outside: how many were ever taken and pushed.
  struct look {
    std::uint64_t front, back;
    std::uint64_t size() const noexcept { return back > front ? back - front : 0; }
  };
  // relaxed: hints; the owner's stores below order the pushes.
  look look_hint() const noexcept {
    return {front_.load(std::memory_order_relaxed), back_.load(std::memory_order_relaxed)};
  }

  bool empty() const noexcept { return list_.empty(); }
  std::size_t size() const noexcept { return list_.size(); }
  goroutine* front() const noexcept { return list_.front(); }

  void push_back(goroutine* g) noexcept {
    list_.push_back(g);
    // hot_store: a store of [W1] (idle_state.hpp). It is made visible before the producer looks
    // whether a processor listens.
    back_.store(back_.load(std::memory_order_relaxed) + 1, base::hot_store_order);
  }

  goroutine* pop_front() noexcept {
    goroutine* const g = list_.pop_front();
    if (g != nullptr) {
      front_.store(front_.load(std::memory_order_relaxed) + 1, base::hot_store_order);
    }
    return g;
  }

 private:
  goroutine_list list_;
  std::atomic<std::uint64_t> front_{0};
  std::atomic<std::uint64_t> back_{0};
};

}  // namespace weft::sched
