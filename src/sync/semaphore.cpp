// semaphore.cpp: the slow paths of counting_semaphore; the essay is in detail/semaphore_core.hpp.
#include <weft/detail/semaphore_core.hpp>

#include "base/check.hpp"
#include "sched/inside.hpp"

namespace weft::detail {

// Slow path when there was a permit, but another thread is still busy with the semaphore (I3).
bool semaphore_core::try_acquire_slow() noexcept {
  sched::inside in;
  const std::uint64_t word = take_bit<seam>(word_, busy) & ~busy;  // [V2]
  const bool got = word >= one_permit;
  word_.store(got ? word - one_permit : word, std::memory_order_release);  // [V1] [V2] I2
  in.leave();
  return got;
}

bool semaphore_core::acquire_slow(wait_limit limit) {
  sched::inside in;
  const std::uint64_t word = take_bit<seam>(word_, busy) & ~busy;  // [V1] [V2]
  if (word >= one_permit) {
    word_.store(word - one_permit, std::memory_order_release);  // [V1] [V2] I2
    in.leave();
    return true;
  }
  waiter self;
  self.primitive = this;
  self.who = prepare_park_inside(wait_reason::semaphore);
  queue_.push_back(self);
  word_.store(waited, std::memory_order_release);  // [V2] I1
  return limit.park<seam>(self.who, &give_up, &self);
}

void semaphore_core::release_slow(std::ptrdiff_t n) noexcept {
  wait_chain served;
  sched::inside in;
  std::uint64_t permits = (take_bit<seam>(word_, busy) >> permit_shift);  // [V2]
  WEFT_ASSERT(queue_.empty() || permits == 0);                            // I1
  for (; n > 0 && !queue_.empty(); --n) served.add(*queue_.pop_front());
  permits += static_cast<std::uint64_t>(n);
  word_.store((permits << permit_shift) | (queue_.empty() ? 0 : waited),
              std::memory_order_release);  // [V1] [V2] I3
  served.ready_all();
  in.leave();
}

bool semaphore_core::give_up(void* argument) noexcept {
  waiter& self = *static_cast<waiter*>(argument);
  semaphore_core& s = *static_cast<semaphore_core*>(self.primitive);
  const std::uint64_t word = take_bit<seam>(s.word_, busy) & ~(busy | waited);  // [V2]
  const bool waits = self.queued;
  if (waits) s.queue_.remove(self);
  s.word_.store(word | (s.queue_.empty() ? 0 : waited), std::memory_order_release);  // [V2]
  return waits;
}

}  // namespace weft::detail
