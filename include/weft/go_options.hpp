// weft/go_options.hpp: the name and the stack of a goroutine. A part of weft/go.hpp.
#pragma once

#include <cstddef>
#include <source_location>
#include <string_view>

namespace weft {

// Options for starting one goroutine.
struct go_options {
  std::string_view name = {};  // copied
  std::size_t stack_size = 0;  // bytes to reserve, at most 1 GiB; 0: the default
  std::source_location where = std::source_location::current();
};

}  // namespace weft
