// guard.hpp: the pages below the stacks that turn an overflow into a fault.
//
// There are two ways to make a guard. MADV_GUARD_INSTALL (Linux 6.13) marks the page in the page
// table and leaves the mapping whole. mprotect splits the mapping in three, and the kernel allows a
// process only vm.max_map_count mappings in all, usually 65,530. When the stacks' mappings come
// near that number, further stacks have no guard, after one warning: a program that runs with
// 20,000 goroutines should also run with 40,000.
//
// Sanitizer builds prefer mprotect. The leak checker reads the stacks. It finds PROT_NONE pages in
// /proc/self/maps and leaves them out, but it cannot see guards made by madvise.
#pragma once

#include "base/env.hpp"
#include "stack/advice.hpp"
#include "stack/extent.hpp"

#include <sys/uio.h>

#include <cstddef>

namespace weft::stack {

inline constexpr std::size_t guard_batch_max = 512;

// Not thread-safe: the pool calls it under its grow lock.
class guards {
 public:
  // `map_limit` stands in for vm.max_map_count; 0: ask the kernel.
  constexpr guards(base::guard_setting wanted, std::size_t map_limit,
                   const advice_calls& calls) noexcept
      : wanted_(wanted), map_limit_(map_limit), install_(advice_guard_install, calls) {}

  // Makes the page below `low` fault for each of the records [first, first + n), all of whose pages
  // are mapped, and writes into each record what kind of guard it has. Requires: n <=
  // guard_batch_max.
  void install(extent* first, std::size_t n) noexcept;

  // To be called when a stack is unmapped, and its guard with it.
  void forget(const extent& e) noexcept;

  // Returns: the kind that the next stack is to have.
  guard_kind kind() noexcept;

  std::size_t count(guard_kind k) const noexcept { return counts_[static_cast<std::size_t>(k)]; }

 private:
  std::size_t install_by_madvise(extent* first, std::size_t n) noexcept;
  bool install_by_mprotect(extent& e) noexcept;
  std::size_t map_budget() noexcept;
  void mark(extent& e, guard_kind k) noexcept;

  base::guard_setting wanted_;
  std::size_t map_limit_;
  bool decided_ = false;  // kind_ is valid
  bool proved_ = false;   // a guard made by madvise was seen to fault
  bool warned_ = false;
  guard_kind kind_ = guard_kind::none;
  std::size_t counts_[3] = {};
  advice install_;
  iovec ranges_[guard_batch_max] = {};  // too large for the stacks that this may run on
};

}  // namespace weft::stack
