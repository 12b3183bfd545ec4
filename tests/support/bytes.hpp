// bytes.hpp: text as what weft reads and writes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace weft::test {

inline std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::span<std::byte> bytes(char* data, std::size_t n) {
  return std::as_writable_bytes(std::span(data, n));
}

}  // namespace weft::test
