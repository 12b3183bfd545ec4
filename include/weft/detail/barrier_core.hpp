// barrier_core.hpp: the phases under weft::barrier.
//
// One word: how many arrivals this phase still lacks (upper half), the number of the phase, and two
// flags. The last arrival runs the completion function, without holding anything, and then begins
// the next phase.
//
//   arrive, not the last       one compare-exchange
//   arrive, the last           one compare-exchange, the completion function, then finish()
//   wait, the phase is over    one load
//   wait, the phase goes on     queues and parks
//
// Invariants:
//   I1  Between the last arrival and finish() no thread arrives: that would be one arrival too
//       many.
//   I2  `busy` guards the queue. The phase changes only while `busy` is held; the number of
//       arrivals also changes without it.
//   I3  The step that begins the next phase also clears `busy`. It is the last step of an arrival
//       that touches the barrier. A wait that finds the phase over but `busy` set stays until
//       `busy` is clear.
//
// Memory order:
//   [Y1] arrive's release -> the last arrival's acquire: what every arriving thread did before, and
//        expected_.
//   [Y2] finish's release -> wait's acquire: what [Y1] publishes, and what the completion function
//        did.
//   [Y3] letting go of `busy` (release) -> taking it (acquire): the queue.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/wait_queue.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::detail {

class barrier_core {
 public:
  static constexpr const char* name = "barrier";
  static constexpr std::ptrdiff_t most = INT32_MAX;

  constexpr explicit barrier_core(std::ptrdiff_t expected) noexcept
      : word_(static_cast<std::uint64_t>(expected) << lacking_shift),
        expected_(static_cast<std::uint32_t>(expected)) {}
  barrier_core(const barrier_core&) = delete;
  barrier_core& operator=(const barrier_core&) = delete;

  struct arrival {
    std::uint32_t phase;
    bool last;  // the caller has to call finish()
  };
  WEFT_API arrival arrive(std::ptrdiff_t n) noexcept;
  // Lowers by one the number of arrivals that later phases expect. Called before arrive(1).
  void drop() noexcept { expected_.fetch_sub(1, std::memory_order_relaxed); }  // ordered by [Y1]
  WEFT_API void finish() noexcept;

  // Returns: false if the limit came first.
  bool wait(std::uint32_t phase, wait_limit limit = no_deadline) {
    const std::uint64_t word = word_.load(std::memory_order_acquire);  // [Y2]
    return ((word & busy) == 0 && phase_of(word) != phase) || wait_slow(phase, limit);
  }

  bool is_waited_for() const noexcept { return !queue_.empty(); }

 private:
  static constexpr std::uint64_t busy = 1;  // I2
  static constexpr int phase_shift = 1;
  static constexpr std::uint64_t one_phase = 1u << phase_shift;
  static constexpr int lacking_shift = 32;

  static std::uint32_t phase_of(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word) >> phase_shift;
  }
  WEFT_API bool wait_slow(std::uint32_t phase, wait_limit limit);
  static bool give_up(void* argument) noexcept;

  std::atomic<std::uint64_t> word_;
  std::atomic<std::uint32_t> expected_;  // of the next phase
  wait_queue queue_;                     // guarded by busy
};

}  // namespace weft::detail
