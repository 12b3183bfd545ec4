// condition_core.hpp: the queue under weft::condition_variable.
//
// A waiter first queues, while it holds the mutex, and then unlocks the mutex. So a thread that
// changes the condition under the mutex finds the waiter in the queue afterwards. notify takes
// waiters out, oldest first. Apart from notify, only its own deadline or interruption lets a waiter
// go on.
//
// A condition_variable may be destroyed when every waiter has been notified, even if not every
// waiter has run since. If the deadline of such a waiter comes before it runs, give_up() must see
// that the waiter has left the queue, and must not touch the condition_variable. So the lock that
// guards the queue lies elsewhere: it is one of a few in the library, chosen by address.
//
// Memory order:
//   [Q1] unlock's release -> lock's acquire: the queue.
//   waiting_ is written under the lock. A notify that reads 0 (relaxed) must not miss a waiter that
//   came before it. The mutex orders such a waiter before the notify; a waiter that the mutex does
//   not order came later.
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

  // Unlocks m, waits to be notified, and returns without locking m. Returns: false if the limit
  // came first.
  WEFT_API bool wait(mutex_core& m, wait_limit limit);

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
