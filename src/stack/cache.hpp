// cache.hpp: the free stacks that one processor has at hand.
//
// A goroutine that ends usually leaves its stack to one that starts on the same processor soon
// after, while the top page is still in the CPU's cache. So free stacks of the default size wait in
// a small last-in-first-out array without a lock. When the array is full or empty, half of its
// capacity is exchanged with the central pool at a time. So even if one processor starts all
// goroutines and another ends them, each visits the pool only for every 32nd goroutine.
//
// Only the machine that holds the processor may call these functions, and only inside the runtime.
#pragma once

#include "base/sanitizer.hpp"
#include "stack/extent.hpp"
#include "stack/pool.hpp"

#include <cstddef>
#include <cstdint>

namespace weft::stack {

class cache {
 public:
  static constexpr std::uint32_t capacity = 64;
  static constexpr std::uint32_t transfer_max = capacity / 2;

  constexpr explicit cache(pool& from = central_pool) noexcept : pool_(&from) {}
  cache(const cache&) = delete;
  cache& operator=(const cache&) = delete;

  // Takes a stack of the default size. Returns: null, with an errno in `error`, if none can be had.
  extent* take(int& error) noexcept {
    if (size_ > 0) [[likely]] {
      return slots_[--size_];
    }
    return take_slow(error);
  }

  // Gives a stack of any size back. Only stacks of the default size stay here.
  void put(extent* e) noexcept {
    if (e->size_class == default_class && size_ < capacity) [[likely]] {
      keep(e);
      return;
    }
    put_slow(e);
  }

  // Gives everything to the pool, as when the processor is retired.
  void drain() noexcept;

  std::uint32_t size() const noexcept { return size_; }

 private:
  void keep(extent* e) noexcept {
    base::sanitizer::unpoison(e->low, e->bytes());
    slots_[size_++] = e;
  }

  extent* take_slow(int& error) noexcept;
  void put_slow(extent* e) noexcept;

  pool* pool_;
  std::uint32_t size_ = 0;    // slots_[0, size_) are free stacks, the warmest last
  std::uint32_t refill_ = 1;  // how many to fetch next: doubles, so that a small program takes few
  extent* slots_[capacity] = {};
};

}  // namespace weft::stack
