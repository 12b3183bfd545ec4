// open_descriptors.hpp: how many descriptors this process has open.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

namespace weft::test {

// Counts the descriptors for which what(target) is true: where /proc says each one leads.
template <class What>
std::ptrdiff_t count_descriptors_if(What&& what) {
  std::ptrdiff_t n = 0;
  std::error_code gone;  // a descriptor that was closed since it was listed
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && what(target.string())) ++n;
  }
  return n;
}

// All but files below /proc: the monitor opens and closes those at any time, to see what threads
// do, and this very count is one of them.
inline std::ptrdiff_t count_descriptors() {
  return count_descriptors_if(
      [](const std::string& target) { return !target.starts_with("/proc/"); });
}

// Only sockets.
inline std::ptrdiff_t count_sockets() {
  return count_descriptors_if(
      [](const std::string& target) { return target.starts_with("socket:"); });
}

}  // namespace weft::test
