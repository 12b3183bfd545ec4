// timer.hpp: something to do at a time. The object is its user's, and in at most one heap
// (timers.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::sched {

class timer_heap;

struct timer {
  void (*fire)(timer*) noexcept = nullptr;
  bool (*wakes)(const timer*) noexcept = nullptr;  // whether a goroutine waits for it; null: yes
  std::int64_t when_ns = 0;                        // guarded by the heap's lock while armed
  std::int64_t period_ns = 0;  // immutable while armed; if not 0, it stays armed when it fires
  std::size_t place = 0;       // guarded by the heap's lock: index in the heap plus 1; 0: not armed
  timer_heap* heap = nullptr;  // set by arm()
  // For timer_spill.hpp, and guarded by the heap's lock:
  timer* child = nullptr;
  timer* next = nullptr;
  timer* previous = nullptr;
};

}  // namespace weft::sched
