# What the compiler must know: C++23, with std::expected. One sentence here instead of a thousand from
# the compiler; include/weft/detail/config.hpp has that sentence for builds without CMake.

include(CMakePushCheckState)
include(CheckCXXSourceCompiles)

function(weft_require_cxx23)
  cmake_push_check_state(RESET)
  # Whatever the project that we are a part of has chosen: weft's targets choose for themselves.
  set(CMAKE_CXX_STANDARD 23)
  if("cxx_std_23" IN_LIST CMAKE_CXX_COMPILE_FEATURES)
    check_cxx_source_compiles(
      "#include <expected>
       int main() { return std::expected<int, int>(0).value(); }"
      WEFT_HAVE_CXX23)
  endif()
  cmake_pop_check_state()
  if(NOT WEFT_HAVE_CXX23)
    unset(WEFT_HAVE_CXX23 CACHE)  # another compiler may come
    message(
      FATAL_ERROR
        "weft needs C++23 with std::expected: g++ 12 or newer, or clang++ 19 or newer with libstdc++ "
        "12 or newer. ${CMAKE_CXX_COMPILER} (${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}) "
        "has not got it; choose another with -DCMAKE_CXX_COMPILER=.")
  endif()
endfunction()

weft_require_cxx23()
