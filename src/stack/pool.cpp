#include "stack/pool.hpp"

#include "base/check.hpp"
#include "base/sanitizer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <type_traits>
#include <utility>

namespace weft::stack {

namespace {

constexpr std::uint32_t first_slots = 64;
// The leak checker reads whole arenas, down to the last slot.
std::uint32_t slots_max() noexcept { return base::sanitizer::is_watched() ? 64 : 32768; }
constexpr std::uint32_t first_batch = 16;
constexpr std::uint32_t batch_max = guard_batch_max;

// Large stacks come in smaller arenas: no program needs 64 stacks of 1 GiB at once.
constexpr std::size_t first_arena_bytes = std::size_t{64} << 20;
constexpr std::size_t arena_bytes_max = std::size_t{16} << 30;

constexpr std::size_t single_bytes_min = std::size_t{8} << 20;
constexpr std::size_t free_singles_max = 4;

constexpr std::size_t give_back_batch = 128;

std::uint32_t slots_within(std::size_t bytes, std::size_t reserve, std::uint32_t most) noexcept {
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(bytes / reserve, 1, most));
}

}  // namespace

constinit pool central_pool;
static_assert(std::is_trivially_destructible_v<pool>, "goroutines may outlive static destructors");

// A default of 8 MiB and more still comes out of arenas: there may be very many of them.
bool pool::is_single(std::uint8_t index) noexcept {
  return index != default_class && reserve_min << index >= single_bytes_min;
}

std::size_t pool::round_reserve(std::size_t bytes) const noexcept {
  return class_bytes(class_of(bytes, default_bytes()), default_bytes());
}

std::size_t pool::take(std::size_t bytes, extent** out, std::size_t n, int& error) noexcept {
  WEFT_ASSERT(n > 0);
  if (bytes > reserve_max) {
    error = EINVAL;
    return 0;
  }
  const std::uint8_t index = class_of(bytes, default_bytes());
  size_class& c = classes_[index];
  if (const std::size_t got = pop_free(c, out, n)) return got;

  const std::lock_guard growing{grow_lock_};
  // The previous holder of the lock may have left some stacks over.
  if (const std::size_t got = pop_free(c, out, n)) return got;
  return grow_locked(index, out, n, error);
}

std::size_t pool::pop_free(size_class& c, extent** out, std::size_t n) noexcept {
  const std::lock_guard lock{list_lock_};
  std::size_t got = 0;
  for (extent_list* list : {&c.young, &c.aged, &c.retiring, &c.cold}) {
    const std::size_t some = std::min(n - got, list->size());
    for (std::size_t i = 0; i < some; ++i) out[got++] = list->pop();
    if (list == &c.retiring) retiring_ -= some;
  }
  return got;
}

// Cuts a batch, gives the caller up to `n` of it and leaves the rest on the cold list.
std::size_t pool::grow_locked(std::uint8_t index, extent** out, std::size_t n,
                              int& error) noexcept {
  size_class& c = classes_[index];
  // relaxed: only holders of the grow lock write slots.
  if (c.open == nullptr || c.open->carved == c.open->slots.load(std::memory_order_relaxed)) {
    c.open = map_arena_locked(index, error);
    if (c.open == nullptr) return 0;
  }
  arena& a = *c.open;
  const std::uint32_t left = a.slots.load(std::memory_order_relaxed) - a.carved;
  if (c.next_batch == 0) c.next_batch = first_batch;
  const std::uint32_t batch = std::min(c.next_batch, left);
  c.next_batch = std::min(c.next_batch * 2, batch_max);

  extent* fresh = arenas_.carve(a, batch, index);
  guards_.install(fresh, batch);  // I2
  carved_ += batch;
  // An arena that can be unmapped must not be looked at again.
  if (is_single(index)) c.open = nullptr;

  const std::size_t given = std::min<std::size_t>(n, batch);
  for (std::size_t i = 0; i < given; ++i) out[i] = fresh + i;
  const std::lock_guard lock{list_lock_};
  for (std::size_t i = batch; i > given; --i) c.cold.push(fresh + i - 1);
  return given;
}

arena* pool::map_arena_locked(std::uint8_t index, int& error) noexcept {
  size_class& c = classes_[index];
  const std::size_t reserve = class_bytes(index, default_bytes());
  if (is_single(index)) {
    c.next_slots = 1;
  } else if (c.next_slots == 0) {
    c.next_slots = slots_within(first_arena_bytes, reserve, first_slots);
  }
  arena* a = arenas_.map({reserve, c.next_slots, guards_.kind()}, error);
  if (a == nullptr) return nullptr;
  // Computed from the size that was granted: a kernel that refused a size would refuse it again.
  const std::uint32_t granted = a->slots.load(std::memory_order_relaxed);  // relaxed: grow lock
  c.next_slots = std::min(granted * 2, slots_within(arena_bytes_max, reserve, slots_max()));
  return a;
}

void pool::put(extent* const* in, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) base::sanitizer::unpoison(in[i]->low, in[i]->bytes());

  extent_list surplus;
  {
    const std::lock_guard lock{list_lock_};
    for (std::size_t i = 0; i < n; ++i) {
      size_class& c = classes_[in[i]->size_class];
      if (c.free_stacks() >= free_singles_max && is_single(in[i]->size_class)) {
        surplus.push(in[i]);
      } else {
        c.young.push(in[i]);
      }
    }
  }
  while (!surplus.empty()) unmap_single(surplus.pop());
}

void pool::unmap_single(extent* e) noexcept {
  const std::lock_guard growing{grow_lock_};
  guards_.forget(*e);
  --carved_;
  arenas_.unmap(arenas_.at(e->arena));
}

std::size_t pool::give_back(std::int64_t now_ns, std::int64_t idle_ns) noexcept {
  {
    const std::lock_guard lock{list_lock_};
    if (!ticking_) {
      ticking_ = true;
      tick_ns_ = now_ns;
    }
    if (retiring_ == 0 && now_ns - tick_ns_ >= idle_ns) {  // I3
      rotate_locked();
      tick_ns_ = now_ns;
    }
  }

  std::size_t total = 0;
  while (total < give_back_max) {
    extent* batch[give_back_batch];
    iovec ranges[give_back_batch];
    const std::size_t n = take_retiring(batch, give_back_batch);
    if (n == 0) break;
    for (std::size_t i = 0; i < n; ++i) {
      const page_range pages = pages_of(*batch[i]);
      ranges[i] = {pages.begin, pages.bytes};
    }
    // A refusal (locked memory) leaves the pages where they are; asking again would not help.
    int error = 0;
    discard_.apply(ranges, n, error);
    total += n;

    const std::lock_guard lock{list_lock_};
    for (std::size_t i = n; i > 0; --i) classes_[batch[i - 1]->size_class].cold.push(batch[i - 1]);
    given_back_ += n;
  }
  return total;
}

void pool::rotate_locked() noexcept {
  for (size_class& c : classes_) {
    WEFT_ASSERT(c.retiring.empty());
    c.retiring = std::exchange(c.aged, std::exchange(c.young, extent_list{}));
    retiring_ += c.retiring.size();
  }
}

std::size_t pool::take_retiring(extent** out, std::size_t n) noexcept {
  const std::lock_guard lock{list_lock_};
  std::size_t got = 0;
  if (retiring_ == 0) return got;
  for (size_class& c : classes_) {
    while (got < n && !c.retiring.empty()) out[got++] = c.retiring.pop();
  }
  retiring_ -= got;
  return got;
}

const extent* pool::find_guard(const void* address) const noexcept {
  std::size_t offset = 0;
  const extent* e = arenas_.find(address, offset);
  if (e == nullptr || offset >= page_bytes()) return nullptr;
  // relaxed: a stack in use was handed to its user after this was written.
  return e->guard.load(std::memory_order_relaxed) != guard_kind::none ? e : nullptr;
}

statistics pool::stats() noexcept {
  statistics s;
  const std::lock_guard growing{grow_lock_};
  s.arenas = arenas_.mapped();
  s.stacks = carved_;
  s.guards_madvise = guards_.count(guard_kind::madvise);
  s.guards_mprotect = guards_.count(guard_kind::mprotect);
  s.guards_none = guards_.count(guard_kind::none);
  const std::lock_guard lock{list_lock_};
  for (const size_class& c : classes_) {
    s.warm += c.young.size() + c.aged.size() + c.retiring.size();
    s.cold += c.cold.size();
  }
  s.given_back = given_back_;
  return s;
}

void pool::unmap_all() noexcept {
  const std::lock_guard growing{grow_lock_};
  const std::lock_guard lock{list_lock_};
  for (size_class& c : classes_) c = size_class{};
  retiring_ = 0;
  carved_ = 0;
  arenas_.unmap_all();
}

}  // namespace weft::stack
