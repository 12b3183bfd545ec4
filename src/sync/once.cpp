// once.cpp: who runs the function of a once_flag; the essay is in detail/once_core.hpp.
#include <weft/detail/once_core.hpp>

#include "sched/inside.hpp"

namespace weft::detail {

bool once_core::begin() {
  sched::inside in;
  const std::uint32_t state = take_bit<seam>(word_, busy) & ~busy;  // [O1] [O2]
  if (state != running) {
    word_.store(state == idle ? running : done, std::memory_order_release);  // [O1] [O2]
    in.leave();
    return state == idle;
  }
  waiter self;
  self.who = prepare_park_inside(wait_reason::once);
  queue_.push_back(self);
  word_.store(running, std::memory_order_release);  // [O2]
  park();
  return self.granted;
}

void once_core::finish() noexcept {
  wait_chain released;
  sched::inside in;
  take_bit<seam>(word_, busy);  // [O2]
  while (waiter* const w = queue_.pop_front()) released.add(*w);
  word_.store(done, std::memory_order_release);  // [O1]
  released.ready_all();
  in.leave();
}

void once_core::fail() noexcept {
  sched::inside in;
  take_bit<seam>(word_, busy);  // [O2]
  waiter* const next = queue_.pop_front();
  if (next != nullptr) next->granted = true;
  word_.store(next != nullptr ? running : idle, std::memory_order_release);  // [O2]
  if (next != nullptr) ready_inside(next->who);
  in.leave();
}

}  // namespace weft::detail
