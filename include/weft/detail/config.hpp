// config.hpp: version, visibility, and the only compiler conditions in a public header.
#pragma once

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "weft runs on Linux on x86-64 and aarch64"
#endif
#if __cplusplus < 202100L
#error "weft needs C++23: -std=c++23 (GCC 12 or Clang 19 and later)"
#endif

#define WEFT_API [[gnu::visibility("default")]]

namespace weft::detail {
#ifdef WEFT_ASSERTIONS
inline constexpr bool assertions = true;
#else
inline constexpr bool assertions = false;
#endif
}  // namespace weft::detail
