// membarrier.hpp: the one place for fences.
//
// Two protocols of the runtime are a store followed by a load of another word, on both sides: the
// seat (seat.hpp) and the wake-up (idle.cpp). Each needs a full barrier between the two on both
// sides; one side runs a hundred million times a second, the other a few thousand times. So the
// cold side makes the hot side's barrier for it: membarrier(PRIVATE_EXPEDITED) interrupts every
// core that runs a thread of this process, and each passes a full barrier. The hot side then needs
// only to keep the compiler from swapping the two.
//
//     hot side                               cold side
//     store A, relaxed                       store B
//     light_barrier()   compiler only        heavy_barrier()   every core passes a full barrier
//     load B                                 load A
//
// forbids that both loads miss the other's store. Where the kernel lacks membarrier, light_barrier
// is a real fence and heavy_barrier another one. TSan understands neither, so under it the hot
// accesses themselves are seq_cst and both barriers vanish.
#pragma once

#include "base/sanitizer.hpp"

#include <atomic>

namespace weft::base {

#if WEFT_TSAN
inline constexpr std::memory_order hot_store_order = std::memory_order_seq_cst;
inline constexpr std::memory_order hot_load_order = std::memory_order_seq_cst;
#else
inline constexpr std::memory_order hot_store_order = std::memory_order_relaxed;
inline constexpr std::memory_order hot_load_order = std::memory_order_acquire;
#endif

namespace detail {
// True once the kernel has agreed to membarrier; written before the first machine starts.
extern bool asymmetric;
void heavy_barrier_slow() noexcept;
}  // namespace detail

// Asks the kernel for membarrier. Called once, before any thread uses the barriers.
void prepare_membarrier() noexcept;

inline void light_barrier() noexcept {
#if !WEFT_TSAN
  if (detail::asymmetric) [[likely]] {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
#endif
}

// Costs 0.2 us on an otherwise idle process and 5 to 16 us with other cores running.
inline void heavy_barrier() noexcept {
#if !WEFT_TSAN
  detail::heavy_barrier_slow();
#endif
}

}  // namespace weft::base
