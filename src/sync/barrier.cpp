// barrier.cpp: the phases of a barrier; the essay is in detail/barrier_core.hpp.
#include <weft/detail/barrier_core.hpp>

#include "base/fatal.hpp"
#include "sched/inside.hpp"

namespace weft::detail {

barrier_core::arrival barrier_core::arrive(std::ptrdiff_t n) noexcept {
  std::uint64_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
  for (;;) {
    const std::uint64_t lacking = word >> lacking_shift;
    if (n <= 0 || static_cast<std::uint64_t>(n) > lacking) {
      base::fatal("more arrivals at a barrier than it expects");
    }
    const std::uint64_t arrived = static_cast<std::uint64_t>(n) << lacking_shift;
    if (word_.compare_exchange_weak(word, word - arrived, std::memory_order_acq_rel,  // [Y1]
                                    std::memory_order_relaxed)) {
      return {phase_of(word), static_cast<std::uint64_t>(n) == lacking};
    }
  }
}

void barrier_core::finish() noexcept {
  wait_chain released;
  sched::inside in;
  const std::uint64_t word = take_bit<seam>(word_, busy);  // [Y3]
  while (waiter* const w = queue_.pop_front()) released.add(*w);
  // A store: no thread arrives meanwhile (I1). The phase wraps around within the lower half.
  const auto phase = static_cast<std::uint32_t>((word & ~busy) + one_phase);
  const std::uint64_t expected = expected_.load(std::memory_order_relaxed);     // ordered by [Y1]
  word_.store(phase | (expected << lacking_shift), std::memory_order_release);  // [Y2] [Y3] I3
  released.ready_all();
  in.leave();
}

bool barrier_core::wait_slow(std::uint32_t phase, wait_limit limit) {
  sched::inside in;
  if (phase_of(take_bit<seam>(word_, busy)) != phase) {  // [Y2] [Y3]
    word_.fetch_and(~busy, std::memory_order_release);   // [Y3]
    in.leave();
    return true;
  }
  waiter self;
  self.primitive = this;
  self.who = prepare_park_inside(wait_reason::barrier);
  queue_.push_back(self);
  word_.fetch_and(~busy, std::memory_order_release);  // [Y3] I2: arrivals may have changed it
  return limit.park<seam>(self.who, &give_up, &self);
}

bool barrier_core::give_up(void* argument) noexcept {
  waiter& self = *static_cast<waiter*>(argument);
  barrier_core& b = *static_cast<barrier_core*>(self.primitive);
  take_bit<seam>(b.word_, busy);  // [Y3]
  const bool waits = self.queued;
  if (waits) b.queue_.remove(self);
  b.word_.fetch_and(~busy, std::memory_order_release);  // [Y3] I2
  return waits;
}

}  // namespace weft::detail
