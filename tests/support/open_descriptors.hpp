// open_descriptors.hpp: how many descriptors this process has open.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace weft::test {

// With the one by which they are counted.
inline std::ptrdiff_t count_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// Only sockets. (Other descriptors come and go: the runtime's own.)
inline std::size_t count_sockets() {
  std::size_t n = 0;
  std::error_code gone;  // a descriptor that was closed since it was listed, the listing's own
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target.string().starts_with("socket:")) ++n;
  }
  return n;
}

}  // namespace weft::test
