// blocks.hpp: 128-byte blocks for the small states that goroutines share (futures, channels), from
// a cache per processor. The cache gets them from operator new, a few at a time, and gives them
// back when it has too many. So processors need not share blocks.
#pragma once

#include "base/sanitizer.hpp"

#include <weft/detail/park.hpp>

#include <cstddef>

namespace weft::sched {

// Guarded by the processor's seat.
class block_cache {
 public:
  static constexpr std::size_t most = 256;

  void* take() noexcept {
    block* const b = free_;
    if (b != nullptr) {
      free_ = b->next;
      --size_;
    }
    return b;
  }

  // Returns: false if the cache has enough blocks; the caller keeps this one. Under a sanitizer no
  // block is kept, so that the sanitizer sees each of them come and go.
  bool put(void* memory) noexcept {
    if (size_ >= most || base::sanitizer::is_watched()) return false;
    block* const b = static_cast<block*>(memory);
    b->next = free_;
    free_ = b;
    ++size_;
    return true;
  }

 private:
  struct block {
    block* next;
  };
  block* free_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace weft::sched
