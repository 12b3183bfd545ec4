// lock.hpp: the lock of the runtime's own shared lists.
//
// It spins for about a microsecond, then sleeps. Nearly all critical sections are a few dozen
// instructions, but the kernel may take a holder's core away in the middle of one, and a few make
// system calls (stack/pool.hpp). A holder never waits for anything but a lock of higher rank.
// docs/hacking.md lists the ranks.
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

// A lock for an object of which there are many, each used by few threads and held for a few
// instructions. A thread that waits spins, then yields its core, then naps. So unlock() need not
// look whether a thread sleeps.
class brief_lock {
 public:
  brief_lock() = default;
  brief_lock(const brief_lock&) = delete;
  brief_lock& operator=(const brief_lock&) = delete;

  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      lock_slow();
  }
  bool try_lock() noexcept { return !held_.exchange(true, std::memory_order_acquire); }  // [L1]
  void unlock() noexcept { held_.store(false, std::memory_order_release); }              // [L1]

 private:
  void lock_slow() noexcept;

  std::atomic<bool> held_{false};
};

}  // namespace weft::base
