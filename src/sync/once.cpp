// once.cpp: which caller runs the function of a once_flag; the essay is in detail/once_core.hpp.
#include <weft/detail/once_core.hpp>

#include "sched/inside.hpp"

namespace weft::detail {

once_core::turn once_core::begin(wait_limit limit) {
  sched::inside in;
  const std::uint32_t state = take_bit<seam>(word_, busy) & ~busy;  // [O1] [O2]
  if (state != running) {
    word_.store(state == idle ? running : was_run, std::memory_order_release);  // [O1] [O2]
    in.leave();
    return state == idle ? turn::run : turn::done;
  }
  waiter self;
  self.primitive = this;
  self.who = prepare_park_inside(wait_reason::once);
  queue_.push_back(self);
  word_.store(running, std::memory_order_release);  // [O2]
  if (!limit.park<seam>(self.who, &give_up, &self)) return turn::gave_up;
  return self.granted ? turn::run : turn::done;
}

bool once_core::give_up(void* argument) noexcept {
  waiter& self = *static_cast<waiter*>(argument);
  once_core& o = *static_cast<once_core*>(self.primitive);
  const std::uint32_t state = take_bit<seam>(o.word_, busy) & ~busy;  // [O2]
  const bool waits = self.queued;
  if (waits) o.queue_.remove(self);
  o.word_.store(state, std::memory_order_release);  // [O1] [O2]
  return waits;
}

void once_core::finish() noexcept {
  wait_chain released;
  sched::inside in;
  take_bit<seam>(word_, busy);  // [O2]
  while (waiter* const w = queue_.pop_front()) released.add(*w);
  word_.store(was_run, std::memory_order_release);  // [O1]
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
