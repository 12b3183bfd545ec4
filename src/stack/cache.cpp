#include "stack/cache.hpp"

#include <algorithm>

namespace weft::stack {

extent* cache::take_slow(int& error) noexcept {
  const std::size_t got = pool_->take(0, slots_, refill_, error);
  if (got == 0) return nullptr;
  refill_ = std::min(refill_ * 2, transfer_max);
  // The pool puts the warmest stack first, and the cache takes from the end.
  std::reverse(slots_, slots_ + got);
  size_ = static_cast<std::uint32_t>(got) - 1;
  return slots_[size_];
}

void cache::put_slow(extent* e) noexcept {
  if (e->size_class != default_class) {
    pool_->put(&e, 1);
    return;
  }
  // The coldest half goes, the warmest stays.
  pool_->put(slots_, transfer_max);
  std::copy(slots_ + transfer_max, slots_ + capacity, slots_);
  size_ = capacity - transfer_max;
  keep(e);
}

void cache::drain() noexcept {
  if (size_ > 0) pool_->put(slots_, size_);
  size_ = 0;
  refill_ = 1;
}

}  // namespace weft::stack
