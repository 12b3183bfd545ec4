#include "sched/records.hpp"

#include "base/check.hpp"
#include "base/sanitizer.hpp"

#include <cerrno>
#include <mutex>
#include <new>
#include <sys/mman.h>

namespace weft::sched {

std::size_t record_pool::take(goroutine_list& out, std::size_t n) noexcept {
  const std::lock_guard hold(lock_);
  std::size_t taken = 0;
  for (; taken < n && !free_.empty(); ++taken) out.push_back(free_.pop_front());
  std::size_t used = used_.load(std::memory_order_relaxed);  // only written under the lock
  for (; taken < n; ++taken) {
    const std::size_t slab = used / records_per_slab;
    if (used % records_per_slab == 0) {
      if (slab == slabs_max) break;
      const int saved = errno;
      void* const memory = ::mmap(nullptr, records_per_slab * sizeof(goroutine),
                                  PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      errno = saved;
      if (memory == MAP_FAILED) break;
      // The record of a goroutine that has not ended may hold the only pointer to what it captured.
      base::sanitizer::register_root(memory, records_per_slab * sizeof(goroutine));
      slabs_[slab].store(static_cast<goroutine*>(memory), std::memory_order_relaxed);  // [R1]
    }
    goroutine* const place = slabs_[slab].load(std::memory_order_relaxed) + used % records_per_slab;
    out.push_back(::new (place) goroutine);
    ++used;
  }
  used_.store(used, std::memory_order_release);  // [R1]
  return taken;
}

void record_pool::put(goroutine_list& records) noexcept {
  const std::lock_guard hold(lock_);
  free_.append(records);
}

goroutine* record_cache::refill(record_pool& pool) noexcept {
  goroutine_list more;
  if (pool.take(more, batch) == 0) return nullptr;
  goroutine* const first = more.pop_front();
  while (goroutine* const g = more.pop_front()) put(g, pool);
  return first;
}

void record_cache::spill(record_pool& pool) noexcept {
  goroutine_list surplus;
  while (size_ > most / 2) {
    goroutine* const g = free_;
    free_ = g->next;
    --size_;
    surplus.push_back(g);
  }
  pool.put(surplus);
}

}  // namespace weft::sched
