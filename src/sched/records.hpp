// records.hpp: where goroutine records come from: slabs of one mapping each, a central free list,
// and a cache per processor. Records are recycled and never unmapped, because a dump scans the
// slabs.
#pragma once

#include "base/lock.hpp"
#include "sched/goroutine_list.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::sched {

class record_pool {
 public:
  static constexpr std::size_t records_per_slab = 4096;
  static constexpr std::size_t slabs_max = 16384;  // 67 million goroutines

  // Moves up to `n` unused records into `out`. Returns: how many; 0 means no memory.
  std::size_t take(goroutine_list& out, std::size_t n) noexcept;
  void put(goroutine_list& records) noexcept;

  // Calls f(goroutine&) for every record ever handed out. Lock-free; may run at the same time as
  // anything else.
  template <class F>
  void for_each(F f) const {
    const std::size_t used = used_.load(std::memory_order_acquire);  // [R1]
    for (std::size_t i = 0; i < used; ++i) {
      // relaxed: ordered by [R1].
      f(slabs_[i / records_per_slab].load(std::memory_order_relaxed)[i % records_per_slab]);
    }
  }

 private:
  base::spin_lock lock_;
  goroutine_list free_;  // guarded by lock_
  // [R1] take() stores used_ (release) -> for_each (acquire): the slabs that hold them.
  std::atomic<goroutine*> slabs_[slabs_max]{};
  std::atomic<std::size_t> used_{0};  // written under lock_: records handed out for the first time
};

// A processor's own unused records; guarded by its seat.
class record_cache {
 public:
  goroutine* take(record_pool& pool) noexcept {
    goroutine* const g = free_;
    if (g == nullptr) [[unlikely]]
      return refill(pool);
    free_ = g->next;
    --size_;
    return g;
  }
  void put(goroutine* g, record_pool& pool) noexcept {
    g->next = free_;
    free_ = g;
    if (++size_ > most) [[unlikely]]
      spill(pool);
  }

 private:
  // A burst of a thousand goroutines, started and ended over and over, stays within the cache.
  static constexpr std::size_t most = 2048;
  static constexpr std::size_t batch = 64;

  goroutine* refill(record_pool& pool) noexcept;
  void spill(record_pool& pool) noexcept;

  goroutine* free_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace weft::sched
