// headers.cpp: the list of header fields.
//
// A connection fills the same list for each request. Strings that are not in use stay behind size_,
// with their memory, so that a request like the last one allocates nothing. The memory that stays
// is bounded (kept_fields, kept_bytes): otherwise a client that sends a long field at another place
// each time would make every string long.
#include <weft/http.hpp>

#include "http/text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace weft::http {
namespace {

constexpr std::size_t kept_fields = 64;
constexpr std::size_t kept_bytes = 8192;
constexpr std::size_t long_string = 128;

constexpr std::array<bool, 256> token_characters = [] {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (int c = 'a'; c <= 'z'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) {
    table[static_cast<unsigned char>(c)] = true;
  }
  return table;
}();

}  // namespace

bool is_token(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return token_characters[static_cast<unsigned char>(c)];
  });
}

bool is_field_value(std::string_view text) noexcept {
  // Eight characters at a time, as long as all of them are at least a blank, and none is DEL.
  constexpr std::uint64_t each = 0x0101010101010101u;
  constexpr std::uint64_t high = 0x80 * each;
  while (text.size() >= sizeof(std::uint64_t)) {
    std::uint64_t eight;
    std::memcpy(&eight, text.data(), sizeof eight);
    const std::uint64_t not_del = eight ^ (0x7f * each);
    const std::uint64_t below_blank = (eight - ' ' * each) & ~eight;
    const std::uint64_t is_del = (not_del - each) & ~not_del;
    if (((below_blank | is_del) & high) != 0) break;  // this one or a neighbour
    text.remove_prefix(sizeof eight);
  }
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return (code >= 0x20 && code != 0x7f) || c == '\t';
  });
}

headers::headers(std::initializer_list<field> fields) : fields_(fields), size_(fields_.size()) {}

headers::headers(const headers& other) : fields_(other.begin(), other.end()), size_(other.size_) {}

const std::string* headers::find(std::string_view name) const noexcept {
  for (const field& f : *this) {
    if (equal_ignoring_case(f.name, name)) return &f.value;
  }
  return nullptr;
}

const std::string& headers::operator[](std::string_view name) const noexcept {
  static const std::string none;
  const std::string* const found = find(name);
  return found != nullptr ? *found : none;
}

void headers::add(std::string_view name, std::string_view value) {
  if (size_ == fields_.size()) {
    fields_.push_back({std::string(name), std::string(value)});
  } else {
    fields_[size_].name.assign(name);
    fields_[size_].value.assign(value);
  }
  ++size_;
  const std::size_t bytes = name.size() + value.size();
  if (bytes > long_string) long_bytes_ += bytes;
}

void headers::set(std::string_view name, std::string_view value) {
  if (find(name) == nullptr) return add(name, value);
  // The arguments may be parts of what is replaced.
  const field fresh{std::string(name), std::string(value)};
  erase(fresh.name);
  add(fresh.name, fresh.value);
}

std::size_t headers::erase(std::string_view name) {
  const std::string own(name);
  const auto first = fields_.begin();
  const auto last = first + static_cast<std::ptrdiff_t>(size_);
  // Rotated to the end and not removed, so that the memory is used again.
  auto kept = first;
  for (auto f = first; f != last; ++f) {
    if (equal_ignoring_case(f->name, own)) continue;
    if (kept != f) std::swap(*kept, *f);
    ++kept;
  }
  const auto gone = static_cast<std::size_t>(last - kept);
  size_ -= gone;
  return gone;
}

void headers::clear() noexcept {
  size_ = 0;
  if (fields_.size() > kept_fields || long_bytes_ > kept_bytes) {
    std::vector<field>().swap(fields_);  // to assign {} would keep the memory
    long_bytes_ = 0;
  }
}

}  // namespace weft::http
