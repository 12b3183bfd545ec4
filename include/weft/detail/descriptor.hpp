// descriptor.hpp: what the handles of sockets, files and pipes have in common.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/time.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>

namespace weft::io {

// A kernel's descriptor, and the goroutines that use it: src/io/descriptor.hpp.
class descriptor;
struct descriptor_deleter {
  WEFT_API void operator()(descriptor* d) const noexcept;
};
using descriptor_ptr = std::unique_ptr<descriptor, descriptor_deleter>;

// The text in a char array: what stands before its NUL, or the whole array if it has none.
template <std::size_t n>
std::string_view text_in(const char (&array)[n]) {
  const std::string_view all(array, n);
  return all.substr(0, all.find('\0'));
}

// The time point that a deadline given as a duration stands for.
template <class Rep, class Period>
clock::time_point from_now(std::chrono::duration<Rep, Period> d) {
  return clock::time_point(clock::duration(detail::deadline_after(detail::to_ns(d))));
}

}  // namespace weft::io
