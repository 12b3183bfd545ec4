// text.hpp: HTTP's rules about characters, and numbers as text.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::http {

inline char to_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

inline bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (to_lower(a[i]) != to_lower(b[i])) return false;
  }
  return true;
}

// A name of a method or a field: RFC 9110's token.
bool is_token(std::string_view text) noexcept;
// Whether the text has no control characters but tabs; so it contains no line end.
bool is_field_value(std::string_view text) noexcept;

// Returns: the number; nothing unless the text consists of digits and the number fits.
inline std::optional<std::uint64_t> parse_number(std::string_view text) noexcept {
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return n;
}

inline void append_number(std::string& to, std::uint64_t n, int base = 10) {
  char digits[20];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, n, base);
  to.append(digits, end);
}

// Empties a string that is used again, and frees its memory if that is more than `kept`. (Assigning
// an empty string would keep the memory.)
inline void clear(std::string& s, std::size_t kept) noexcept {
  s.clear();
  if (s.capacity() > kept) std::string().swap(s);
}

}  // namespace weft::http
