// mutex_core.hpp: the lock under weft::mutex; Go's sync.Mutex with its two modes.
//
// One word says what an uncontended lock and unlock must know. A queue of waiters and two flags
// beside it are guarded by the bit `busy`.
//
//   lock, free                 one fetch_or
//   lock, not free             spins if that can help, then queues at the tail and parks
//   unlock, no waiter to wake  one compare-exchange
//   unlock, `wake` is set      takes out the first waiter. In normal mode it unlocks and readies
//                              the waiter, which competes with newcomers. In starvation mode the
//                              waiter is the new owner, and `locked` stays set
//
// Normal mode. A waiter that was readied competes with goroutines that already run, and mostly
// loses; then it queues at the head again. Only one waiter at a time is on the way (`woken_`), so
// that unlock after unlock does not wake the whole queue. This keeps a busy lock on the processor
// that has it.
//
// Starvation mode. A waiter that lost and has waited for 1 ms turns it on. Then unlock hands the
// lock to the head of the queue; newcomers cannot get in between and queue at the tail. The mode
// ends with a new owner that has waited for less, or is the last in the queue.
//
// Bias. A mutex that one machine has locked a thousand times in a row, without meeting another
// thread, becomes biased to that machine (`biased`). Its goroutines then lock and unlock the mutex
// inside the runtime by a plain flag, held_, with no atomic operation at all. The bias ends when
// another thread uses the mutex, or when a goroutine has to wait for it: src/sched/bias.hpp tells
// how a bias is revoked. (At one processor lock and unlock take 6 ns instead of 18.)
//
// Invariants:
//   I1  If a waiter queues and the lock is free, one waiter is on the way (woken_).
//   I2  If a waiter queues, the lock is held and no waiter is on the way, `wake` is set. So the
//       unlock that would break I1 takes the slow path. `wake` is set only by a step that sees
//       `locked`, or by a thread that is about to hold the lock.
//   I3  Only the holder clears `locked`, together with every other change that it has to make to
//       the word: no unlock touches the mutex after the step that lets another goroutine in.
//   I4  While `biased` is set, no waiter queues or is on the way, and no thread has `busy`.
//       `locked` means nothing then, because a thread that tried to lock may have set it; held_
//       counts.
//
// Memory order:
//   [U1] unlock's release -> lock's acquire: what the previous holder did.
//   [U2] the release that clears `busy` -> the acquire that sets it: queue_, woken_, starving_.
//   [U3] the revoker's release of the word -> lock's acquire: what was done under the bias.
//
// The slow paths are in src/sync/mutex_slow.hpp; tests/model/mutex_test.cpp explores them.
//
// Dropped: handing the lock over with a yield, as Go does in starvation mode. unlock would then be
// a call after which the thread may be another.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/wait_queue.hpp>

#include <atomic>
#include <cstdint>

namespace weft::detail {

template <class Scheduler>
class basic_mutex {
 public:
  static constexpr const char* name = "mutex";
  constexpr basic_mutex() = default;
  basic_mutex(const basic_mutex&) = delete;
  basic_mutex& operator=(const basic_mutex&) = delete;

  bool try_lock() noexcept {
    if ((word_.load(std::memory_order_relaxed) & biased) != 0) return try_lock_biased();
    const std::uint32_t before = word_.fetch_or(locked, std::memory_order_acquire);  // [U1] [U3]
    if ((before & (locked | biased)) != 0) [[unlikely]]
      return (before & biased) != 0 && try_lock_biased();
    if (--uses_left_ == 0) [[unlikely]]
      consider_bias();
    return true;
  }
  void lock(wait_reason reason = wait_reason::mutex) {
    if (!try_lock()) [[unlikely]]
      lock_slow(reason, no_deadline);
  }
  // Returns: false if the limit came first.
  bool lock_until(wait_limit limit, wait_reason reason = wait_reason::mutex) {
    return try_lock() || lock_slow(reason, limit);
  }
  void unlock() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    if ((word & (locked | wake | biased)) != locked ||
        !word_.compare_exchange_strong(word, word & ~locked, std::memory_order_release,  // [U1]
                                       std::memory_order_relaxed)) [[unlikely]] {
      unlock_slow();
    }
  }

  // unlock for a caller that is inside the runtime already. Requires: the caller called
  // forgo_bias() while it held the lock, before it entered the runtime.
  WEFT_API void unlock_inside() noexcept;
  // Revokes the bias, if there is one. Outside the runtime.
  void forgo_bias() noexcept {
    if ((word_.load(std::memory_order_relaxed) & biased) != 0) revoke_bias();
  }

  // Hints, for assertions and tests.
  bool is_locked() const noexcept {
    const std::uint32_t word = word_.load(std::memory_order_relaxed);
    return (word & biased) != 0 ? held_ : (word & locked) != 0;
  }
  bool is_waited_for() const noexcept { return !queue_.empty(); }

 private:
  static constexpr std::uint32_t locked = 1;
  static constexpr std::uint32_t wake = 2;      // I2
  static constexpr std::uint32_t busy = 4;      // [U2]
  static constexpr std::uint32_t biased = 8;    // I4
  static constexpr std::uint32_t leaving = 16;  // the bias is being revoked
  static constexpr std::uint32_t last_bias = 1u << 28;

  using waiter = basic_waiter<Scheduler>;

  WEFT_API bool lock_slow(wait_reason reason, wait_limit limit);
  WEFT_API void unlock_slow() noexcept;
  WEFT_API bool try_lock_biased() noexcept;
  WEFT_API void consider_bias() noexcept;
  WEFT_API void revoke_bias() noexcept;
  bool unlock_biased() noexcept;
  std::uint32_t take_busy(typename Scheduler::inside& in) noexcept;
  bool spin() noexcept;
  std::uint32_t wake_if_due() const noexcept { return queue_.empty() || woken_ ? 0 : wake; }
  static bool give_up(void* argument) noexcept;

  typename Scheduler::template atomic<std::uint32_t> word_{0};
  // Guarded by locked: until the next consider_bias().
  std::uint32_t uses_left_ = Scheduler::first_bias;
  // The machine that has the bias, or may get it next. The holder writes it with busy, and so does
  // a revoker. relaxed: a machine only compares it with itself.
  typename Scheduler::template atomic<void*> owner_{nullptr};
  std::uint32_t bias_after_ = Scheduler::first_bias;  // guarded by locked
  bool held_ = false;                                 // I4: used by owner_, inside the runtime
  bool woken_ = false;                 // guarded by busy: a waiter is on the way to compete
  bool starving_ = false;              // guarded by busy
  basic_wait_queue<Scheduler> queue_;  // guarded by busy
};

using mutex_core = basic_mutex<seam>;

// Ends a program that unlocks what is not locked. `what`: "an unlocked mutex".
[[noreturn]] WEFT_API void die_of_unlock(const char* what) noexcept;

}  // namespace weft::detail
