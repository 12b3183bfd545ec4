// cache.hpp: the free stacks that one processor has at hand.
//
// Nearly every goroutine that ends leaves its stack to one that starts on the same processor soon
// after, with its top page still in the cache. So stacks of the default size wait in a small
// last-in-first-out array without any lock, and only what flows over or runs out goes through the
// central pool, half a cache at a time: a processor that starts goroutines and another that ends
// them meet there once in 32.
//
// Only the processor's holder may call, and inside the runtime only.
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

  // Takes a stack of the default size. Returns: null, with an errno in `error`, if there is none.
  extent* take(int& error) noexcept {
    if (size_ > 0) [[likely]] {
      return slots_[--size_];
    }
    return take_slow(error);
  }

  // Gives a stack back, of any size; only those of the default size stay here.
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
