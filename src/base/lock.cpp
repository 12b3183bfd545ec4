#include "base/lock.hpp"

#include <time.h>

namespace weft::base {

void spin_lock::lock_slow() noexcept {
  for (int turn = 0; turn < 40; ++turn) {
    pause();
    // relaxed: a look before the exchange that counts.
    if (word_.load(std::memory_order_relaxed) == free && try_lock()) return;
  }
  while (word_.exchange(contended, std::memory_order_acquire) != free) {  // [L1]
    futex_wait(word_, contended);
  }
}

void brief_lock::lock_slow() noexcept {
  for (int turn = 0;; ++turn) {
    if (turn < 100) {
      pause();
    } else if (turn < 200) {
      yield_thread();
    } else {  // the holder may have a lower priority than this thread, and need its core
      constexpr timespec nap{.tv_sec = 0, .tv_nsec = 50'000};
      ::nanosleep(&nap, nullptr);
    }
    // relaxed: a look before the exchange that counts.
    if (!held_.load(std::memory_order_relaxed) && try_lock()) return;
  }
}

}  // namespace weft::base
