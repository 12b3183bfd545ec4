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
constexpr std::size_t piece_bytes = 64 << 10;  // whole pages, wherever there is Linux
constexpr std::size_t spilled = SIZE_MAX;      // the place of a timer that is in the spill

}  // namespace

void timer_heap::arm(timer& t, std::int64_t when_ns) noexcept {
  const std::lock_guard hold(lock_);
  WEFT_ASSERT(t.place == 0);
  t.heap = this;
  t.when_ns = when_ns;
  insert_locked(t);
  publish_locked();
}

bool timer_heap::disarm(timer& t) noexcept {
  if (t.heap == nullptr) return false;
  const std::lock_guard hold(t.heap->lock_);
  if (t.place == 0) return false;
  t.heap->take_out_locked(t);
  t.heap->publish_locked();
  return true;
}

std::size_t timer_heap::run(std::int64_t now_ns) noexcept {
  if (earliest_hint() > now_ns) return 0;
  const std::lock_guard hold(lock_);
  std::size_t fired = 0;
  for (timer* t = first_locked(); t != nullptr && t->when_ns <= now_ns; t = first_locked()) {
    take_out_locked(*t);
    if (t->period_ns > 0) {
      // Ticks that are long past are left out; future ticks stay in step.
      const std::int64_t rest = t->period_ns - (now_ns - t->when_ns) % t->period_ns;
      t->when_ns = rest > base::never - now_ns ? base::never : now_ns + rest;
      insert_locked(*t);
    }
    // The timer's memory may go as soon as its owner runs; but the owner calls disarm() first.
    t->fire(t);
    ++fired;
  }
  publish_locked();
  return fired;
}

bool timer_heap::could_wake() noexcept {
  const auto could = [](const timer* t) { return t->wakes == nullptr || t->wakes(t); };
  const std::lock_guard hold(lock_);
  return std::any_of(entries_, entries_ + size_, [&](const entry& e) { return could(e.what); }) ||
         spill_.any_of(could);
}

timer* timer_heap::drop_first() noexcept {
  const std::lock_guard hold(lock_);
  timer* const t = first_locked();
  if (t == nullptr) return nullptr;
  take_out_locked(*t);
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
  size_ = capacity_ = touched_ = 0;
  spill_.clear();
  publish_locked();
}

timer* timer_heap::first_locked() const noexcept {
  WEFT_ASSERT(lock_.is_locked());
  timer* const t = size_ != 0 ? entries_[0].what : nullptr;
  timer* const other = spill_.first();
  if (other == nullptr) [[likely]]
    return t;
  return t == nullptr || other->when_ns < t->when_ns ? other : t;
}

void timer_heap::insert_locked(timer& t) noexcept {
  WEFT_ASSERT(lock_.is_locked());
  if (size_ == capacity_ && !grow_locked()) [[unlikely]] {
    t.place = spilled;
    spill_.insert(t);
    return;
  }
  up_locked(size_++, {t.when_ns, &t});
  touched_ = std::max(touched_, size_);
}

void timer_heap::take_out_locked(timer& t) noexcept {
  WEFT_ASSERT(lock_.is_locked());
  if (t.place == spilled) [[unlikely]] {
    spill_.remove(t);
  } else {
    remove_locked(t.place - 1);
  }
  t.place = 0;
}

bool timer_heap::grow_locked() noexcept {
  const std::size_t capacity = capacity_ == 0 ? first_capacity : capacity_ * 2;
  if (capacity > most_) return false;
  const int saved = errno;
  void* const memory = ::mmap(nullptr, capacity * sizeof(entry), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) {
    // An entry may be the only pointer to a timer without a handle.
    base::sanitizer::register_root(memory, capacity * sizeof(entry));
    std::copy_n(entries_, size_, static_cast<entry*>(memory));
    if (capacity_ != 0) {
      base::sanitizer::unregister_root(entries_, capacity_ * sizeof(entry));
      ::munmap(entries_, capacity_ * sizeof(entry));
    }
    entries_ = static_cast<entry*>(memory);
    capacity_ = capacity;
    touched_ = size_;
  }
  errno = saved;
  return memory != MAP_FAILED;
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
  if (touched_ - size_ >= 2 * piece_bytes / sizeof(entry)) [[unlikely]]
    give_back_locked();
  if (at == size_) return;
  if (at != 0 && last.when_ns < entries_[(at - 1) / fan_out].when_ns) {
    up_locked(at, last);
  } else {
    down_locked(at, last);
  }
}

// Gives back the last piece of the entries that have been in use. One more unused piece is kept, so
// that a heap whose size goes up and down a little gives nothing back.
[[gnu::noinline]] void timer_heap::give_back_locked() noexcept {
  constexpr std::size_t piece = piece_bytes / sizeof(entry);
  const std::size_t from = (touched_ - 1) / piece * piece;
  const int saved = errno;
  // Where this fails (locked memory), the pages just stay.
  (void)::madvise(entries_ + from, (touched_ - from) * sizeof(entry), MADV_DONTNEED);
  errno = saved;
  touched_ = from;
}

void timer_heap::publish_locked() noexcept {
  WEFT_ASSERT(lock_.is_locked());
  const timer* const first = first_locked();
  const std::int64_t earliest = first == nullptr ? base::never : first->when_ns;
  // relaxed: written under the lock only.
  if (earliest_.load(std::memory_order_relaxed) != earliest) {
    earliest_.store(earliest, base::hot_store_order);  // a store of [W1]
  }
}

}  // namespace weft::sched
