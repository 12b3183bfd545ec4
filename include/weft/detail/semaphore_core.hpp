// semaphore_core.hpp: the counter under weft::counting_semaphore.
//
// One word: the number of permits, and two flags. Waiters queue, guarded by the flag `busy`.
//
//   acquire, permits exist     one compare-exchange
//   acquire, none              queues and parks
//   release, no waiter         one compare-exchange
//   release, waiters           takes out as many waiters as it has permits; adds the rest
//
// Invariants:
//   I1  A waiter queues (`waited`) only while there are no permits. A released permit goes to the
//       first waiter in the queue, so no goroutine overtakes.
//   I2  While `busy` is set only its holder changes the word.
//   I3  The step that makes a permit available is the last step of release that touches the
//       semaphore. So a thread that finds `busy` set takes no permit before it has had `busy`
//       itself.
//
// Memory order:
//   [V1] release's release -> acquire's acquire: what came before. Later compare-exchanges pass it
//        on.
//   [V2] letting go of `busy` (release) -> taking it (acquire): the queue.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/wait_queue.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::detail {

class semaphore_core {
 public:
  static constexpr const char* name = "semaphore";
  static constexpr std::ptrdiff_t most = PTRDIFF_MAX >> 2;

  constexpr explicit semaphore_core(std::ptrdiff_t permits) noexcept
      : word_(static_cast<std::uint64_t>(permits) << permit_shift) {}
  semaphore_core(const semaphore_core&) = delete;
  semaphore_core& operator=(const semaphore_core&) = delete;

  bool try_acquire() noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    while (word >= one_permit) {
      if ((word & busy) != 0) [[unlikely]]
        return try_acquire_slow();
      if (word_.compare_exchange_weak(word, word - one_permit, std::memory_order_acquire,  // [V1]
                                      std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }
  void acquire() {
    if (!try_acquire()) acquire_slow(no_deadline);
  }
  // Returns: false if the limit came first.
  bool acquire_until(wait_limit limit) { return try_acquire() || acquire_slow(limit); }
  void release(std::ptrdiff_t n) noexcept {
    const std::uint64_t more = static_cast<std::uint64_t>(n) << permit_shift;
    std::uint64_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    while ((word & (busy | waited)) == 0) {
      if (word_.compare_exchange_weak(word, word + more, std::memory_order_release,  // [V1] I3
                                      std::memory_order_relaxed)) {
        return;
      }
    }
    release_slow(n);
  }

  bool is_waited_for() const noexcept {
    return (word_.load(std::memory_order_relaxed) & waited) != 0;
  }

 private:
  static constexpr std::uint64_t busy = 1;    // I2
  static constexpr std::uint64_t waited = 2;  // I1
  static constexpr int permit_shift = 2;
  static constexpr std::uint64_t one_permit = 1u << permit_shift;

  WEFT_API bool try_acquire_slow() noexcept;
  WEFT_API bool acquire_slow(wait_limit limit);
  WEFT_API void release_slow(std::ptrdiff_t n) noexcept;
  static bool give_up(void* argument) noexcept;

  std::atomic<std::uint64_t> word_;
  wait_queue queue_;  // guarded by busy
};

}  // namespace weft::detail
