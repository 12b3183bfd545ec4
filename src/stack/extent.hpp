// extent.hpp: the record of one goroutine stack.
//
// A stack is a slot of an arena: a guard page, then the pages the goroutine may use. Its record
// lies in the arena's metadata and not on the stack, so that an idle stack can give all its pages
// back and a free list costs no page per stack.
//
//     slot of stride bytes
//     | guard page | usable ............................ first frames | colour |
//                  low                                               top      end
//
// Stacks start a little below the end of their slot, by a colour that differs from slot to slot.
// Without the colour, the hottest frames of all parked goroutines would lie at the same offset in
// their pages and compete for the same few sets of the CPU's cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::stack {

enum class guard_kind : std::uint8_t {
  none,      // the page below the stack is ordinary memory
  madvise,   // it faults, by MADV_GUARD_INSTALL
  mprotect,  // it faults, by PROT_NONE
};

struct extent {
  std::byte* low = nullptr;     // first usable byte; immutable while the stack is mapped
  std::byte* top = nullptr;     // where the stack starts, 16-byte aligned; immutable, too
  extent* next = nullptr;       // free-list link; belongs to the holder of the stack
  std::uint32_t arena = 0;      // index in the pool's arena table; immutable
  std::uint8_t size_class = 0;  // immutable
  std::atomic<guard_kind> guard{guard_kind::none};  // set before the stack is first handed out

  std::size_t bytes() const noexcept { return static_cast<std::size_t>(top - low); }
};
static_assert(sizeof(extent) == 32, "a million stacks should cost 32 MB of records, not more");

}  // namespace weft::stack
