// reserve.hpp: how large stacks are.
//
// A stack is a reserve of address space; memory is committed page by page as it is touched. The
// reserve asked for is rounded up to a size class, so that freed stacks find a next user: powers of
// two from 16 KiB to 1 GiB, and one more class of exactly the default reserve, which nearly every
// goroutine uses.
#pragma once

#include "base/env.hpp"

#include <cstddef>
#include <cstdint>

namespace weft::stack {

inline constexpr std::size_t reserve_min = base::stack_bytes_min;
inline constexpr std::size_t reserve_max = base::stack_bytes_max;

inline constexpr std::size_t power_classes = 17;  // 2^14 to 2^30
inline constexpr std::uint8_t default_class = power_classes;
inline constexpr std::size_t class_count = power_classes + 1;
static_assert(reserve_min << (power_classes - 1) == reserve_max);

// The kernel's page size. Guards and reserves are whole pages.
std::size_t page_bytes() noexcept;

inline std::size_t round_to_pages(std::size_t bytes) noexcept {
  const std::size_t page = page_bytes();
  return (bytes + page - 1) & ~(page - 1);
}

// Returns: WEFT_STACK if the user set it, else 256 KiB (512 KiB under a sanitizer, whose frames are
// two to three times as large), in whole pages.
std::size_t default_reserve() noexcept;

// Returns: the class that serves `bytes`; 0 asks for the default. `default_bytes` is the reserve of
// the default class. Requires: bytes <= reserve_max.
std::uint8_t class_of(std::size_t bytes, std::size_t default_bytes) noexcept;

// Returns: the usable bytes of a stack of that class, before its colour is taken off.
std::size_t class_bytes(std::uint8_t size_class, std::size_t default_bytes) noexcept;

// Returns: the reserve that a goroutine asking for `bytes` gets.
std::size_t round_reserve(std::size_t bytes) noexcept;

}  // namespace weft::stack
