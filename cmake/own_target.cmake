# weft_own_target(target): the language level and the warnings of everything written here, and of
# nothing that comes from elsewhere (GoogleTest).
function(weft_own_target target)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 23 CXX_STANDARD_REQUIRED ON
                                             CXX_EXTENSIONS OFF)
  set(warnings -Wall -Wextra -Wshadow -Wconversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # At -O3 this warning reports overlaps in std::string's operator+ that do not exist.
    list(APPEND warnings -Wno-restrict)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND WEFT_SANITIZE)
    # GCC's manual says that sanitizers lead it to false ones.
    list(APPEND warnings -Wno-maybe-uninitialized)
  endif()
  if(WEFT_WERROR)
    list(APPEND warnings -Werror)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
endfunction()
