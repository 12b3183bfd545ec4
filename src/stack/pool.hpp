// pool.hpp: the free stacks of the process that are in no processor's cache.
//
// Free stacks of a size class wait in four lists, by how much of them is likely to be in the cache
// and in memory, and are taken from the first that has any:
//
//   young     put back since the last tick of the pool's clock
//   aged      put back in the tick before; not used for at least a tick
//   retiring  idle for longer; their pages are being given back
//   cold      without pages: given back, or cut from an arena and never used
//
// The clock is give_back(), which the monitor calls now and then. Ageing is a rotation of the
// lists, so neither put nor take reads a clock and no list is ever searched.
//
// When the lists of a class are empty a batch of new stacks is cut from an arena. Batches and
// arenas start small and double, so that a small program stays small and a million stacks need few
// system calls and fewer than a hundred mappings. Stacks of 8 MiB and more that are not the default
// have a mapping each, and are unmapped when a few are free already, to save address space.
//
// Locks, in the order of their rank:
//   grow_lock_  arenas, guards: for making new stacks. Held over system calls. A thread that finds
//               a free stack never waits for this lock.
//   list_lock_  the free lists. Held for a few instructions per stack.
//
// Invariants:
//   I1  A stack is in exactly one place: one free list, one processor's cache, or one goroutine.
//   I2  A stack in a list has its guard, or never will: guards are installed before it is first
//       handed out, and giving pages back leaves them alone.
//   I3  A rotation happens only when nothing is retiring, so each stack that retires has been in
//       the pool for a whole tick.
#pragma once

#include "base/env.hpp"
#include "base/lock.hpp"
#include "stack/advice.hpp"
#include "stack/arena.hpp"
#include "stack/extent.hpp"
#include "stack/guard.hpp"
#include "stack/reserve.hpp"

#include <cstddef>
#include <cstdint>

namespace weft::stack {

// A last-in-first-out list through extent::next.
class extent_list {
 public:
  void push(extent* e) noexcept {
    e->next = head_;
    head_ = e;
    ++size_;
  }

  // Requires: not empty.
  extent* pop() noexcept {
    extent* e = head_;
    head_ = e->next;
    e->next = nullptr;
    --size_;
    return e;
  }

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

 private:
  extent* head_ = nullptr;
  std::size_t size_ = 0;
};

struct pool_options {
  std::size_t default_bytes = 0;  // reserve of the default class, whole pages; 0: default_reserve()
  base::guard_setting guard = base::guard_setting::automatic;  // automatic: as WEFT_DEBUG says
  std::size_t map_limit = 0;  // stands in for vm.max_map_count; 0: ask the kernel
  const advice_calls* calls = &kernel_advice_calls;
};

struct statistics {
  std::size_t arenas = 0;  // mapped now
  std::size_t stacks = 0;  // cut from them: in use, cached or free
  std::size_t warm = 0;    // free here, may have pages
  std::size_t cold = 0;    // free here, without pages
  std::size_t guards_madvise = 0;
  std::size_t guards_mprotect = 0;
  std::size_t guards_none = 0;
  std::size_t given_back = 0;  // stacks that lost their pages, ever
};

class pool {
 public:
  // How many stacks one give_back() handles at most: about a millisecond's work.
  static constexpr std::size_t give_back_max = 1024;

  // The destructor is trivial: the process's pool outlives everything. Tests call unmap_all().
  constexpr explicit pool(pool_options options = {}) noexcept
      : default_bytes_(options.default_bytes),
        guards_(options.guard, options.map_limit, *options.calls),
        discard_(advice_dont_need, *options.calls) {}
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;

  // Takes up to `n` stacks for a reserve of `bytes` (0: the default), best first, into `out`.
  // Returns: how many, at least one; or 0, with an errno in `error`: EINVAL for more than
  // reserve_max, else what the kernel said.
  std::size_t take(std::size_t bytes, extent** out, std::size_t n, int& error) noexcept;

  // Gives `n` stacks back, of any classes. The last one is the first to be taken again.
  void put(extent* const* in, std::size_t n) noexcept;

  // Gives back the pages of stacks that have been here for at least `idle_ns` and, if calls come
  // often enough, at most twice that. `now_ns` is any clock that does not go back. One caller at a
  // time. Returns: how many stacks; give_back_max means that there are more, so call again soon.
  std::size_t give_back(std::int64_t now_ns, std::int64_t idle_ns) noexcept;

  // Returns: the stack whose guard page contains `address`; null if there is none.
  // Async-signal-safe; meant for the handler of the fault.
  const extent* find_guard(const void* address) const noexcept;

  // Returns: the reserve that a request for `bytes` gets. Requires: bytes <= reserve_max.
  std::size_t round_reserve(std::size_t bytes) const noexcept;

  statistics stats() noexcept;

  // Unmaps everything. Requires: no stack is in use, no other thread is here.
  void unmap_all() noexcept;

 private:
  struct size_class {
    extent_list young, aged, retiring, cold;  // list_lock_
    arena* open = nullptr;                    // grow_lock_: the arena that new stacks are cut from
    std::uint32_t next_slots = 0;             // grow_lock_: size of the next arena; 0: none yet
    std::uint32_t next_batch = 0;             // grow_lock_: how many to cut next; 0: none yet

    std::size_t free_stacks() const noexcept {
      return young.size() + aged.size() + retiring.size() + cold.size();
    }
  };

  std::size_t default_bytes() const noexcept {
    return default_bytes_ != 0 ? default_bytes_ : default_reserve();
  }
  static bool is_single(std::uint8_t index) noexcept;

  std::size_t pop_free(size_class& c, extent** out, std::size_t n) noexcept;
  std::size_t grow_locked(std::uint8_t index, extent** out, std::size_t n, int& error) noexcept;
  arena* map_arena_locked(std::uint8_t index, int& error) noexcept;
  void unmap_single(extent* e) noexcept;
  void rotate_locked() noexcept;
  std::size_t take_retiring(extent** out, std::size_t n) noexcept;

  const std::size_t default_bytes_;  // 0: default_reserve()

  alignas(64) base::spin_lock list_lock_;
  size_class classes_[class_count];
  std::size_t retiring_ = 0;    // list_lock_: in all classes
  std::size_t given_back_ = 0;  // list_lock_
  std::int64_t tick_ns_ = 0;    // list_lock_: when the lists were last rotated
  bool ticking_ = false;        // list_lock_: tick_ns_ is valid

  alignas(64) base::spin_lock grow_lock_;
  arena_table arenas_;
  std::size_t carved_ = 0;  // grow_lock_: stacks in existence
  guards guards_;

  advice discard_;
};

extern constinit pool central_pool;

// The process's pool.
inline pool& central() noexcept { return central_pool; }

inline const extent* find_guard(const void* address) noexcept {
  return central().find_guard(address);
}

}  // namespace weft::stack
