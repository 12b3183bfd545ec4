// condition_core.hpp: the queue under weft::condition_variable.
//
// A waiter queues while it holds the mutex, and unlocks that only then; so whoever changes what it
// waits for, under the mutex, finds it in the queue afterwards. notify takes waiters out, oldest
// first; nothing else lets one go on but its own deadline.
//
// A condition_variable may be destroyed when everyone who waits has been notified, though perhaps
// not everyone has run since. A deadline that comes in between has to find out that its waiter is
// no longer in the queue without touching the condition_variable. So the queue is guarded by a lock
// elsewhere: one of a few in the library, chosen by address.
//
// Memory order:
//   [Q1] unlock's release -> lock's acquire: the queue.
//   waiting_ is written under the lock. A notify that reads 0 (relaxed) is ordered after a waiter
//   that it must not miss, by the mutex; if it was not, the waiter came later.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/mutex_core.hpp>
#include <weft/detail/wait_queue.hpp>

#include <atomic>
#include <cstdint>

namespace weft::detail {

class condition_core {
 public:
  static constexpr const char* name = "condition_variable";
  constexpr condition_core() = default;
  condition_core(const condition_core&) = delete;
  condition_core& operator=(const condition_core&) = delete;

  // Unlocks m, waits to be notified, and returns without it. Returns: false if the limit came
  // first.
  WEFT_API bool wait(mutex_core& m, patience limit);

  void notify_one() noexcept {
    if (is_waited_for()) notify_slow(1);
  }
  void notify_all() noexcept {
    if (is_waited_for()) notify_slow(UINT32_MAX);
  }

  bool is_waited_for() const noexcept { return waiting_.load(std::memory_order_relaxed) != 0; }

 private:
  WEFT_API void notify_slow(std::uint32_t n) noexcept;
  static bool give_up(void* argument) noexcept;

  std::atomic<std::uint32_t> waiting_{0};
  wait_queue queue_;  // guarded by the lock
};

}  // namespace weft::detail
