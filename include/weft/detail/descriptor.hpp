// descriptor.hpp: what the handles of sockets, files and pipes have in common.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/time.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace weft::io {

// A descriptor of the kernel and the goroutines that use it: src/io/descriptor.hpp.
class descriptor;
struct descriptor_deleter {
  WEFT_API void operator()(descriptor* d) const noexcept;
};
using descriptor_ptr = std::unique_ptr<descriptor, descriptor_deleter>;

// Text to be written. Anything that converts to a std::string_view, except {}, which keeps its
// meaning of no bytes. Of a literal or a char array only the part before the first NUL counts.
class text {
 public:
  template <std::convertible_to<std::string_view> T>
  explicit(false) text(const T& from) : text_(from) {}
  template <std::size_t n>
  explicit(false) text(const char (&array)[n]) : text_(array, n) {
    text_ = text_.substr(0, text_.find('\0'));
  }
  text(const char* begin, std::size_t size) : text_(begin, size) {}

  std::span<const std::byte> bytes() const noexcept { return std::as_bytes(std::span(text_)); }

 private:
  std::string_view text_;
};

// Room for text to be read. Anything that converts to a std::span<char>, except {}.
class text_room {
 public:
  template <std::convertible_to<std::span<char>> T>
    requires(!std::same_as<std::remove_cvref_t<T>, text_room>)
  explicit(false) text_room(T&& room) : room_(std::forward<T>(room)) {}
  text_room(char* begin, std::size_t size) : room_(begin, size) {}

  std::span<std::byte> bytes() const noexcept { return std::as_writable_bytes(room_); }

 private:
  std::span<char> room_;
};

// Returns: the time point that a deadline given as a duration stands for.
template <class Rep, class Period>
clock::time_point from_now(std::chrono::duration<Rep, Period> d) {
  return clock::time_point(clock::duration(detail::deadline_after(detail::to_ns(d))));
}

}  // namespace weft::io
