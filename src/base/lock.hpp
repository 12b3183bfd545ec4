// lock.hpp: the lock of the runtime's own shared lists.
//
// It spins for about a microsecond, then sleeps: critical sections are a few dozen instructions,
// but the kernel may take a holder's core away in the middle of one. A holder never waits for
// anything but a lock of higher rank. docs/hacking.md lists the ranks.
//
// Memory order:
//   [L1] unlock's release -> lock's acquire: what the previous holder wrote.
#pragma once

#include "base/futex.hpp"

#include <atomic>
#include <cstdint>

namespace weft::base {

class spin_lock {
 public:
  spin_lock() = default;
  spin_lock(const spin_lock&) = delete;
  spin_lock& operator=(const spin_lock&) = delete;

  void lock() noexcept {
    std::uint32_t expected = free;
    if (!word_.compare_exchange_strong(expected, held, std::memory_order_acquire,  // [L1]
                                       std::memory_order_relaxed)) {
      lock_slow();
    }
  }

  bool try_lock() noexcept {
    std::uint32_t expected = free;
    return word_.compare_exchange_strong(expected, held, std::memory_order_acquire,  // [L1]
                                         std::memory_order_relaxed);
  }

  // Whether anybody has it: for assertions.
  bool is_locked() const noexcept { return word_.load(std::memory_order_relaxed) != free; }

  void unlock() noexcept {
    if (word_.exchange(free, std::memory_order_release) == contended) {  // [L1]
      futex_wake(word_, 1);
    }
  }

 private:
  enum : std::uint32_t { free, held, contended };  // contended: a thread may sleep

  void lock_slow() noexcept;

  std::atomic<std::uint32_t> word_{free};
};

}  // namespace weft::base
