// condition_variable.cpp: waiting and notifying; the essay is in detail/condition_core.hpp.
#include <weft/detail/condition_core.hpp>

#include "sched/inside.hpp"

#include <cstddef>

namespace weft::detail {
namespace {

constexpr std::uint32_t held = 1;

struct alignas(64) queue_lock {
  std::atomic<std::uint32_t> word{0};

  void lock() noexcept { take_bit<seam>(word, held); }                  // [Q1]
  void unlock() noexcept { word.store(0, std::memory_order_release); }  // [Q1]
};

constexpr int locks_log2 = 6;
constinit queue_lock locks[std::size_t{1} << locks_log2];

queue_lock& lock_of(const void* condition) noexcept {
  const std::uint64_t mixed = reinterpret_cast<std::uintptr_t>(condition) * 0x9e3779b97f4a7c15u;
  return locks[mixed >> (64 - locks_log2)];
}

// relaxed: under the lock; others read a hint.
void add(std::atomic<std::uint32_t>& count, std::uint32_t n) noexcept {
  count.store(count.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

bool condition_core::wait(mutex_core& m, wait_limit limit) {
  waiter self;
  self.primitive = this;
  queue_lock& lock = lock_of(this);
  m.forgo_bias();
  self.who = prepare_park(wait_reason::condition);
  lock.lock();
  queue_.push_back(self);
  add(waiting_, 1);
  lock.unlock();
  m.unlock_inside();
  return limit.park<seam>(self.who, &give_up, &self);
}

void condition_core::notify_slow(std::uint32_t n) noexcept {
  wait_chain told;
  queue_lock& lock = lock_of(this);
  sched::inside in;
  lock.lock();
  for (; n != 0 && !queue_.empty(); --n) {
    told.add(*queue_.pop_front());
    add(waiting_, ~std::uint32_t{0});
  }
  lock.unlock();
  told.ready_all();
  in.leave();
}

bool condition_core::give_up(void* argument) noexcept {
  waiter& self = *static_cast<waiter*>(argument);
  queue_lock& lock = lock_of(self.primitive);
  lock.lock();
  const bool waits = self.queued;
  if (waits) {  // so the condition_variable is still there
    condition_core& c = *static_cast<condition_core*>(self.primitive);
    c.queue_.remove(self);
    add(c.waiting_, ~std::uint32_t{0});
  }
  lock.unlock();
  return waits;
}

}  // namespace weft::detail
