// arena.hpp: the address space that stacks are cut from, and the table of all of it.
//
// An arena is one mapping with room for many stacks of one size class. The kernel allows a process
// some 65,000 mappings, but a program may have a million goroutines. Its slots are cut off one
// after the other; the records of its stacks lie behind the last slot, where no overflow reaches
// them:
//
//     base
//     | guard | stack 0 | guard | stack 1 | ... | guard | stack n-1 | records |
//
// The stride from slot to slot is the reserve plus one page, so it is not a power of two: the tops
// of many stacks spread over all sets of caches and TLBs instead of a few. An arena of one stack
// keeps the record in its table entry and needs no page for it.
//
// The table has a fixed capacity and does not move, so that a signal handler can search it while
// other threads add to it.
//
// Memory order:
//   [A1] arena_table::publish's release of base -> find's acquire: the entry's other fields are
//        set, and so are the records' pages.
//   [A2] arena_table::publish's release of used -> find's acquire: the entries below it exist.
//   The other fields are relaxed atomics, because an entry may be reused for another arena while a
//   signal handler looks at it. The handler never searches for such an entry: the stack that it
//   runs on, or that overflowed, is in use.
#pragma once

#include "stack/extent.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::stack {

struct arena {
  std::atomic<std::byte*> base{nullptr};  // null: the entry is unused. [A1]
  std::atomic<std::size_t> stride{0};
  std::atomic<extent*> records{nullptr};
  std::atomic<std::uint32_t> slots{0};
  std::uint32_t carved = 0;          // grow lock: slots [0, carved) are stacks
  std::uint32_t index = 0;           // where in the table this is
  std::size_t mapped_bytes = 0;      // grow lock
  bool leak_root = false;            // grow lock: the leak checker was told to search it
  std::uintptr_t valgrind_name = 0;  // grow lock: of the last stack that was cut off
  arena* next_unused = nullptr;      // grow lock
  extent single;                     // the record of an arena with one slot
};

// How large an arena to map, and how many stacks to cut from it.
struct arena_shape {
  std::size_t reserve_bytes = 0;  // whole pages
  std::uint32_t slots = 0;
  guard_kind guard = guard_kind::none;  // how its stacks will be guarded
};

class arena_table {
 public:
  static constexpr std::uint32_t capacity = 65536;

  // Maps an arena of the shape, or of half as many slots, and so on down to one, if the kernel
  // refuses. Requires: the grow lock. Returns: null, with an errno in `error`, if not even one
  // fits.
  arena* map(arena_shape shape, int& error) noexcept;

  // Unmaps an arena none of whose stacks is in use or in a list. Requires: the grow lock.
  void unmap(arena& a) noexcept;

  // Cuts the next `n` slots off the arena and fills in their records, but for the guards.
  // Requires: the grow lock; that many are left. Returns: the first record.
  extent* carve(arena& a, std::uint32_t n, std::uint8_t size_class) noexcept;

  arena& at(std::uint32_t index) noexcept;
  std::uint32_t mapped() const noexcept { return mapped_; }  // grow lock

  // Returns: the record of the stack whose slot contains `address`, and in `offset` where in the
  // slot that is; null if there is none. Async-signal-safe.
  const extent* find(const void* address, std::size_t& offset) const noexcept;

  // For tests, which make pools of their own: unmaps everything.
  void unmap_all() noexcept;

 private:
  arena* new_entry(int& error) noexcept;
  bool map_slots(arena& a, arena_shape shape, int& error) noexcept;

  std::atomic<arena*> entries_{nullptr};
  std::atomic<std::uint32_t> used_{0};  // entries ever used. [A2]
  arena* unused_ = nullptr;             // grow lock: entries to be used again
  std::uint32_t mapped_ = 0;            // grow lock
};

// All the pages of a stack, those of its colour too, without its guard.
struct page_range {
  std::byte* begin;
  std::size_t bytes;
};
page_range pages_of(const extent& e) noexcept;

}  // namespace weft::stack
