#include "sched/timers.hpp"

#include "base/check.hpp"
#include "base/membarrier.hpp"
#include "base/sanitizer.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <sys/mman.h>

namespace weft::sched {
namespace {

constexpr std::size_t fan_out = 4;
constexpr std::size_t first_capacity = 256;

}  // namespace

bool timer_heap::arm(timer& t, std::int64_t when_ns) noexcept {
  const std::lock_guard hold(lock_);
  WEFT_ASSERT(t.place == 0);
  if (size_ == capacity_ && !grow_locked()) return false;
  t.heap = this;
  t.when_ns = when_ns;
  up_locked(size_++, {when_ns, &t});
  publish_locked();
  return true;
}

bool timer_heap::disarm(timer& t) noexcept {
  if (t.heap == nullptr) return false;
  const std::lock_guard hold(t.heap->lock_);
  if (t.place == 0) return false;
  t.heap->remove_locked(t.place - 1);
  t.place = 0;
  t.heap->publish_locked();
  return true;
}

std::size_t timer_heap::run(std::int64_t now_ns) noexcept {
  if (earliest_hint() > now_ns) return 0;
  const std::lock_guard hold(lock_);
  std::size_t fired = 0;
  for (; size_ != 0 && entries_[0].when_ns <= now_ns; ++fired) {
    timer* const t = entries_[0].what;
    if (t->period_ns > 0) {
      // Ticks that are long past are left out; those to come stay in step.
      const std::int64_t late = now_ns - t->when_ns;
      t->when_ns += (late / t->period_ns + 1) * t->period_ns;
      down_locked(0, {t->when_ns, t});
    } else {
      remove_locked(0);
      t->place = 0;
    }
    // The timer may be gone as soon as its owner runs, which it does only after disarm().
    t->fire(t);
  }
  publish_locked();
  return fired;
}

bool timer_heap::could_wake() noexcept {
  const std::lock_guard hold(lock_);
  return std::any_of(entries_, entries_ + size_, [](const entry& e) {
    return e.what->wakes == nullptr || e.what->wakes(e.what);
  });
}

timer* timer_heap::drop_first() noexcept {
  const std::lock_guard hold(lock_);
  if (size_ == 0) return nullptr;
  timer* const t = entries_[0].what;
  remove_locked(0);
  t->place = 0;
  publish_locked();
  return t;
}

void timer_heap::clear() noexcept {
  const std::lock_guard hold(lock_);
  if (capacity_ != 0) {
    base::sanitizer::unregister_root(entries_, capacity_ * sizeof(entry));
    ::munmap(entries_, capacity_ * sizeof(entry));
  }
  entries_ = nullptr;
  size_ = capacity_ = 0;
  publish_locked();
}

bool timer_heap::grow_locked() noexcept {
  const int saved = errno;
  const std::size_t capacity = capacity_ == 0 ? first_capacity : capacity_ * 2;
  void* const memory =
      capacity_ == 0
          ? ::mmap(nullptr, capacity * sizeof(entry), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
          : ::mremap(entries_, capacity_ * sizeof(entry), capacity * sizeof(entry), MREMAP_MAYMOVE);
  errno = saved;
  if (memory == MAP_FAILED) return false;
  // A timer that nobody holds any more is kept by its entry alone.
  if (capacity_ != 0) base::sanitizer::unregister_root(entries_, capacity_ * sizeof(entry));
  base::sanitizer::register_root(memory, capacity * sizeof(entry));
  entries_ = static_cast<entry*>(memory);
  capacity_ = capacity;
  return true;
}

void timer_heap::place_locked(std::size_t at, entry e) noexcept {
  entries_[at] = e;
  e.what->place = at + 1;
}

void timer_heap::up_locked(std::size_t at, entry e) noexcept {
  while (at != 0) {
    const std::size_t parent = (at - 1) / fan_out;
    if (entries_[parent].when_ns <= e.when_ns) break;
    place_locked(at, entries_[parent]);
    at = parent;
  }
  place_locked(at, e);
}

void timer_heap::down_locked(std::size_t at, entry e) noexcept {
  for (;;) {
    const std::size_t first = at * fan_out + 1;
    if (first >= size_) break;
    std::size_t least = first;
    for (std::size_t i = first + 1; i < size_ && i < first + fan_out; ++i) {
      if (entries_[i].when_ns < entries_[least].when_ns) least = i;
    }
    if (e.when_ns <= entries_[least].when_ns) break;
    place_locked(at, entries_[least]);
    at = least;
  }
  place_locked(at, e);
}

void timer_heap::remove_locked(std::size_t at) noexcept {
  WEFT_ASSERT(at < size_);
  const entry last = entries_[--size_];
  if (at == size_) return;
  if (at != 0 && last.when_ns < entries_[(at - 1) / fan_out].when_ns) {
    up_locked(at, last);
  } else {
    down_locked(at, last);
  }
}

void timer_heap::publish_locked() noexcept {
  const std::int64_t earliest = size_ == 0 ? base::never : entries_[0].when_ns;
  // relaxed: written under the lock only.
  if (earliest_.load(std::memory_order_relaxed) != earliest) {
    earliest_.store(earliest, base::hot_store_order);  // a store of [W1]
  }
}

}  // namespace weft::sched
