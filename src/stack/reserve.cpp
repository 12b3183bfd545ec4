#include "stack/reserve.hpp"

#include "base/check.hpp"
#include "base/sanitizer.hpp"

#include <sys/auxv.h>

#include <algorithm>
#include <bit>

namespace weft::stack {

namespace {

// Instrumented frames are larger.
std::size_t built_in_reserve() noexcept {
  return base::sanitizer::is_watched() ? std::size_t{512} << 10 : std::size_t{256} << 10;
}

}  // namespace

std::size_t page_bytes() noexcept { return ::getauxval(AT_PAGESZ); }

std::size_t default_reserve() noexcept {
  const std::size_t asked = base::env().stack_bytes;
  return round_to_pages(
      std::clamp(asked != 0 ? asked : built_in_reserve(), reserve_min, reserve_max));
}

std::uint8_t class_of(std::size_t bytes, std::size_t default_bytes) noexcept {
  WEFT_CHECK(bytes <= reserve_max);
  if (bytes == 0) return default_class;
  const std::size_t power = std::bit_ceil(std::max({bytes, reserve_min, page_bytes()}));
  // The default class also serves requests that would be rounded up to its size or more, because
  // its stacks are in the processors' caches.
  if (bytes <= default_bytes && power >= default_bytes) return default_class;
  return static_cast<std::uint8_t>(std::countr_zero(power) - std::countr_zero(reserve_min));
}

std::size_t class_bytes(std::uint8_t size_class, std::size_t default_bytes) noexcept {
  return size_class == default_class ? default_bytes : reserve_min << size_class;
}

std::size_t round_reserve(std::size_t bytes) noexcept {
  const std::size_t default_bytes = default_reserve();
  return class_bytes(class_of(bytes, default_bytes), default_bytes);
}

}  // namespace weft::stack
