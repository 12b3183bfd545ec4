// membarrier.hpp: the only place for fences.
//
// Some protocols of the runtime consist, on both sides, of a store followed by a load of another
// word: the seat (seat.hpp), the bias (bias.hpp) and the wake-up (idle_state.hpp). Each side needs
// a full barrier between its store and its load. One side runs a hundred million times a second,
// the other a few thousand times. So the cold side makes the barrier for both sides:
// membarrier(PRIVATE_EXPEDITED) interrupts every core that runs a thread of this process, and each
// of those cores passes a full barrier. The hot side only has to keep the compiler from reordering
// its store and its load.
//
//     hot side                               cold side
//     store A, relaxed                       store B
//     light_barrier()   compiler only        heavy_barrier()   every core passes a full barrier
//     load B                                 load A
//
// So at least one of the two loads sees the other side's store. If the kernel lacks membarrier,
// light_barrier and heavy_barrier are both real fences. TSan understands neither kind of barrier,
// so in TSan builds the hot accesses themselves are seq_cst and both barriers are empty.
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
