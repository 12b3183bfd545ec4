# c-ares asks the name servers without blocking a thread. It is optional: without it weft::net looks
# names up by the C library, in threads.
#
# As libbacktrace it is linked by name, so that the installed package works with another version.

include(CMakePushCheckState)
include(CheckCXXSourceCompiles)

option(WEFT_CARES "Look names up with c-ares, if there is one" ON)

if(WEFT_CARES AND NOT DEFINED WEFT_HAVE_CARES)
  cmake_push_check_state(RESET)
  set(CMAKE_REQUIRED_LIBRARIES cares)
  check_cxx_source_compiles(
    "#include <ares.h>
     int main() {
       ares_addrinfo_hints hints{};
       ares_getaddrinfo(nullptr, nullptr, nullptr, &hints, nullptr, nullptr);
     }"
    WEFT_HAVE_CARES)
  cmake_pop_check_state()
endif()

# Which of the two files `sources`, a list's name, keeps.
function(weft_choose_look_up sources)
  if(WEFT_CARES AND WEFT_HAVE_CARES)
    list(FILTER ${sources} EXCLUDE REGEX "/look_up_getaddrinfo\\.cpp$")
  else()
    message(STATUS "No c-ares: names are looked up by the C library, in threads")
    list(FILTER ${sources} EXCLUDE REGEX "/look_up_cares\\.cpp$")
  endif()
  set(${sources} "${${sources}}" PARENT_SCOPE)
endfunction()

function(weft_use_cares target)
  if(WEFT_CARES AND WEFT_HAVE_CARES)
    target_link_libraries(${target} PRIVATE cares)
  endif()
endfunction()
