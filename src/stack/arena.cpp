#include "stack/arena.hpp"

#include "base/check.hpp"
#include "base/sanitizer.hpp"
#include "base/valgrind.hpp"
#include "stack/reserve.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <new>

namespace weft::stack {

namespace {

// Sixteen colours of two cache lines. The first kilobyte below the lowest top still lies in the top
// page, so that a parked goroutine with shallow frames touches one page whatever its colour.
constexpr std::uint32_t colours = 16;
constexpr std::size_t colour_bytes = 128;
static_assert((colours - 1) * colour_bytes <= 2048);
static_assert(colour_bytes % 16 == 0);

constexpr std::size_t table_bytes = sizeof(arena) * arena_table::capacity;

void* map_pages(std::size_t bytes, int& error) noexcept {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) return p;
  error = errno;
  return nullptr;
}

}  // namespace

arena& arena_table::at(std::uint32_t index) noexcept {
  // relaxed: the caller got the index from a record, which was published after the table.
  return entries_.load(std::memory_order_relaxed)[index];
}

arena* arena_table::new_entry(int& error) noexcept {
  if (arena* a = unused_) {
    unused_ = a->next_unused;
    return a;
  }
  arena* entries = entries_.load(std::memory_order_relaxed);  // relaxed: grow lock
  if (entries == nullptr) {
    entries = static_cast<arena*>(map_pages(table_bytes, error));
    if (entries == nullptr) return nullptr;
    entries_.store(entries, std::memory_order_release);  // [A2] orders it for find
  }
  const std::uint32_t index = used_.load(std::memory_order_relaxed);  // relaxed: grow lock
  if (index == capacity) {
    error = ENOMEM;
    return nullptr;
  }
  arena* a = new (&entries[index]) arena;
  a->index = index;
  used_.store(index + 1, std::memory_order_release);  // [A2]
  return a;
}

arena* arena_table::map(arena_shape shape, int& error) noexcept {
  arena* a = new_entry(error);
  if (a == nullptr) return nullptr;
  for (; shape.slots > 0; shape.slots /= 2) {
    if (map_slots(*a, shape, error)) {
      ++mapped_;
      return a;
    }
  }
  a->next_unused = unused_;
  unused_ = a;
  return nullptr;
}

bool arena_table::map_slots(arena& a, arena_shape shape, int& error) noexcept {
  const std::size_t stride = shape.reserve_bytes + page_bytes();
  const std::size_t stacks = stride * shape.slots;
  const std::size_t records = shape.slots > 1 ? round_to_pages(sizeof(extent) * shape.slots) : 0;
  auto* base = static_cast<std::byte*>(map_pages(stacks + records, error));
  if (base == nullptr) return false;
  // A huge page would commit two megabytes for the first frame of a goroutine. A kernel without
  // huge pages refuses this call, which does no harm.
  ::madvise(base, stacks + records, MADV_NOHUGEPAGE);
  // The leak checker must see pointers that only a parked goroutine holds, and must not read pages
  // that fault without being PROT_NONE.
  a.leak_root = shape.guard != guard_kind::madvise;
  if (a.leak_root) base::sanitizer::register_root(base, stacks);

  a.carved = 0;
  a.mapped_bytes = stacks + records;
  // relaxed: ordered by [A1].
  a.stride.store(stride, std::memory_order_relaxed);
  a.slots.store(shape.slots, std::memory_order_relaxed);
  a.records.store(records > 0 ? reinterpret_cast<extent*>(base + stacks) : &a.single,
                  std::memory_order_relaxed);
  a.base.store(base, std::memory_order_release);  // [A1]
  return true;
}

void arena_table::unmap(arena& a) noexcept {
  // relaxed, all of it: only the grow lock's holder writes these.
  std::byte* base = a.base.load(std::memory_order_relaxed);
  const std::size_t stacks =
      a.stride.load(std::memory_order_relaxed) * a.slots.load(std::memory_order_relaxed);
  if (a.leak_root) base::sanitizer::unregister_root(base, stacks);
  // Arenas of more than one stack are never unmapped, except by tests.
  if (a.carved == 1) base::valgrind::unregister_stack(a.valgrind_name);
  a.base.store(nullptr, std::memory_order_relaxed);
  WEFT_CHECK(::munmap(base, a.mapped_bytes) == 0);
  --mapped_;
  a.next_unused = unused_;
  unused_ = &a;
}

extent* arena_table::carve(arena& a, std::uint32_t n, std::uint8_t size_class) noexcept {
  // relaxed: grow lock.
  const std::size_t stride = a.stride.load(std::memory_order_relaxed);
  std::byte* const base = a.base.load(std::memory_order_relaxed);
  extent* const records = a.records.load(std::memory_order_relaxed);
  const std::size_t page = page_bytes();
  WEFT_CHECK(n <= a.slots.load(std::memory_order_relaxed) - a.carved);

  const std::uint32_t first = a.carved;
  for (std::uint32_t i = first; i < first + n; ++i) {
    extent* e = new (&records[i]) extent;
    e->low = base + stride * i + page;
    e->top = base + stride * (i + 1) - ((a.index + i) % colours) * colour_bytes;
    e->arena = a.index;
    e->size_class = size_class;
    a.valgrind_name = base::valgrind::register_stack(e->low, pages_of(*e).bytes);
  }
  a.carved += n;
  return records + first;
}

const extent* arena_table::find(const void* address, std::size_t& offset) const noexcept {
  const std::uint32_t used = used_.load(std::memory_order_acquire);  // [A2]
  const arena* entries = entries_.load(std::memory_order_acquire);   // [A2]
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (std::uint32_t i = 0; i < used; ++i) {
    const arena& a = entries[i];
    const std::byte* base = a.base.load(std::memory_order_acquire);  // [A1]
    const auto begin = reinterpret_cast<std::uintptr_t>(base);
    // relaxed: ordered by [A1].
    const std::size_t stride = a.stride.load(std::memory_order_relaxed);
    const std::uint32_t slots = a.slots.load(std::memory_order_relaxed);
    if (base == nullptr || wanted < begin || wanted - begin >= stride * slots) continue;
    const std::size_t slot = (wanted - begin) / stride;
    offset = (wanted - begin) % stride;
    return &a.records.load(std::memory_order_relaxed)[slot];  // relaxed: ordered by [A1]
  }
  return nullptr;
}

void arena_table::unmap_all() noexcept {
  arena* entries = entries_.load(std::memory_order_relaxed);  // relaxed: no other thread is left
  if (entries == nullptr) return;
  for (std::uint32_t i = 0; i < used_.load(std::memory_order_relaxed); ++i) {
    if (entries[i].base.load(std::memory_order_relaxed) != nullptr) unmap(entries[i]);
  }
  unused_ = nullptr;
  used_.store(0, std::memory_order_relaxed);
  entries_.store(nullptr, std::memory_order_relaxed);
  WEFT_CHECK(::munmap(entries, table_bytes) == 0);
}

page_range pages_of(const extent& e) noexcept {
  const auto top = reinterpret_cast<std::uintptr_t>(e.top);
  const std::size_t colour = round_to_pages(top) - top;
  return {e.low, e.bytes() + colour};
}

}  // namespace weft::stack
