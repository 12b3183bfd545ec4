// config.hpp: version, visibility, and the only compiler conditions in a public header.
#pragma once

#include <version>

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "weft runs on Linux on x86-64 and aarch64"
#endif
#ifndef __cpp_lib_expected
#error "weft needs C++23 with std::expected: -std=c++23, g++ 12 or clang++ 19 and newer"
// Compilers go on after #error, and stop for good at a header that does not exist.
#include <weft/needs/c++23>
#endif

#define WEFT_API [[gnu::visibility("default")]]

namespace weft::detail {
#ifdef WEFT_ASSERTIONS
inline constexpr bool assertions = true;
#else
inline constexpr bool assertions = false;
#endif
}  // namespace weft::detail
