// blocks.hpp: 128-byte blocks for the small states that goroutines share (futures, channels), from
// a cache per processor. They come from operator new, a few at a time, and go back to it when a
// processor has too many, so nothing has to be shared between processors.
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

  // Returns: false if there are enough; the caller keeps it. Sanitizers should see every block come
  // and go.
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
