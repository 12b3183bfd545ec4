// parker.hpp: puts one thread to sleep until it is woken, remembering a wake-up that comes first.
//
// One waiter, any number of wakers. A wake-up is a token; wait() consumes it. Wake-ups do not add
// up: several before one wait() count as one. That suits a waiter that checks what it waits for.
//
//     waiter                                 waker
//     exchange word: -> sleeping             exchange word: -> token
//       was token: done                        was sleeping: futex_wake
//     futex_wait while sleeping
//
// Instead of on the futex the waiter may sleep elsewhere, in the poller; the waker interrupts it.
//
// [K1] Both sides exchange, so one of them sees the other: either the waiter finds the token, or
// the waker finds it sleeping. tests/model/parker_test.cpp.
//
// Memory order:
//   [K2] waker's exchange (release) -> waiter's (acquire): what the waker did before.
//   [K3] wait()'s exchange (release) -> sleeps_for_ever() (acquire): what the waiter did before.
//
// The waker touches the parker only with the exchange; the futex call that follows uses nothing but
// its address. So a parker may be gone as soon as its wait() has returned.
#pragma once

#include "base/check.hpp"
#include "base/platform.hpp"

#include <cstdint>

namespace weft::sched {

template <class Platform>
class basic_parker {
 public:
  basic_parker() = default;
  basic_parker(const basic_parker&) = delete;
  basic_parker& operator=(const basic_parker&) = delete;

  // Blocks: the thread, until there is a token. Calls lie_down() if the thread has to wait: from
  // then on only wake() can let it go on.
  template <class F>
  void wait(F&& lie_down) noexcept {
    const std::uint32_t before =
        word_.exchange(sleeping_for_ever, std::memory_order_acq_rel);  // [K1] [K3]
    WEFT_ASSERT_ON(Platform, before == empty || before == token);      // one waiter
    if (before != token) {
      lie_down();
      while (word_.load(std::memory_order_acquire) != token) {  // [K2]
        Platform::futex_wait(word_, sleeping_for_ever);
      }
    }
    consume();
  }
  void wait() noexcept {
    wait([] {});
  }

  // Takes a token if there is one, without waiting.
  bool try_wait() noexcept { return word_.load(std::memory_order_relaxed) == token && consume(); }

  // Waits until `deadline_ns` at the latest. Returns: whether a token was consumed.
  bool wait_until(std::int64_t deadline_ns) noexcept {
    const std::uint32_t before = word_.exchange(sleeping, std::memory_order_acq_rel);  // [K1]
    WEFT_ASSERT_ON(Platform, before == empty || before == token);                      // one waiter
    if (before != token) {
      bool in_time = true;
      while (in_time && word_.load(std::memory_order_acquire) != token) {  // [K2]
        in_time = Platform::futex_wait_until(word_, sleeping, deadline_ns);
      }
    } else {
      // [K1] The exchange took the token and left `sleeping` behind.
      consume();
      return true;
    }
    return consume();  // a token that comes at the last instant counts
  }

  // Sleeps in block(), which an interrupt ends, now or when it begins; block() may also end for any
  // other reason. Returns: whether a token was consumed.
  template <class F>
  bool wait_elsewhere(F&& block) noexcept {
    const std::uint32_t before =
        word_.exchange(sleeping_elsewhere, std::memory_order_acq_rel);  // [K1]
    WEFT_ASSERT_ON(Platform, before == empty || before == token);       // one waiter
    if (before != token) {
      block();
      return consume();
    }
    consume();
    return true;
  }

  // Lets the waiter go on, now or at its next wait(). Returns: whether this ended a wait without a
  // deadline.
  bool wake() noexcept {
    const std::uint32_t before = word_.exchange(token, std::memory_order_acq_rel);  // [K1] [K2]
    if (before == sleeping_elsewhere) {
      Platform::interrupt();
    } else if (before >= sleeping) {
      Platform::futex_wake(word_, 1);
    }
    return before == sleeping_for_ever;
  }

  // Whether nothing but a future wake() can let the waiter go on.
  bool sleeps_for_ever() const noexcept {
    return word_.load(std::memory_order_acquire) == sleeping_for_ever;  // [K3]
  }

 private:
  enum : std::uint32_t { empty, token, sleeping, sleeping_for_ever, sleeping_elsewhere };

  // An exchange, not a store: a store could linger, and wipe out the token of a wake-up that comes
  // after the waiter has checked what it waits for. [K1] [K2]
  bool consume() noexcept { return word_.exchange(empty, std::memory_order_acq_rel) == token; }

  typename Platform::template atomic<std::uint32_t> word_{empty};
};

using parker = basic_parker<base::platform>;

}  // namespace weft::sched
