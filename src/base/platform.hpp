// platform.hpp: what a lock-free protocol of the scheduler needs of the hardware and the kernel.
//
// The protocol headers of src/sched (seat, idle_state, parker, bias) take `class Platform` and name
// atomics, fences, futexes and pauses only through it. The runtime uses `platform` below; the model
// tests pass one whose every operation is a point where the explorer may switch threads, and whose
// stores may linger in a store buffer (tests/model/explore.hpp). The cores of the primitives, which
// also park and ready, take a `Scheduler` instead (weft/detail/park.hpp, seam).
#pragma once

#include "base/fatal.hpp"
#include "base/futex.hpp"
#include "base/interrupt.hpp"
#include "base/membarrier.hpp"

#include <atomic>
#include <cstdint>

namespace weft::base {

struct platform {
  template <class T>
  using atomic = std::atomic<T>;

  // The two ends of an asymmetric store-then-load protocol: light costs nothing and stands on the
  // hot side, heavy costs microseconds and stands on the cold one. See membarrier.hpp.
  static void light_barrier() noexcept { base::light_barrier(); }
  static void heavy_barrier() noexcept { base::heavy_barrier(); }

  // The order of a store (or load) on the hot side: relaxed beside light_barrier(), seq_cst in
  // builds whose checker does not understand fences.
  static constexpr std::memory_order hot_store = base::hot_store_order;
  static constexpr std::memory_order hot_load = base::hot_load_order;

  // One turn of a loop that waits for another thread.
  static void pause() noexcept { base::pause(); }
  // Like the function above, in a loop that has waited for long: lets the kernel run another
  // thread.
  static void yield_thread() noexcept { base::yield_thread(); }

  static void futex_wait(const atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
    base::futex_wait(word, expected);
  }
  // Returns: false once `deadline_ns` has passed.
  static bool futex_wait_until(const atomic<std::uint32_t>& word, std::uint32_t expected,
                               std::int64_t deadline_ns) noexcept {
    return base::futex_wait_until(word, expected, deadline_ns) == woken::by_wake;
  }
  static void futex_wake(const atomic<std::uint32_t>& word, int count) noexcept {
    base::futex_wake(word, count);
  }
  // For WEFT_ASSERT_ON (check.hpp).
  static void check(bool condition, const char* text) noexcept {
    if (!condition) fatal(text);
  }

  // Wakes the thread that sleeps in the poller.
  static void interrupt() noexcept { interrupt_poller(); }
};

}  // namespace weft::base
