# cmake -DCOMPILER= -DFLAGS= -DSOURCE= -P expect_compile_error.cmake
#
# Passes if SOURCE does not compile and the compiler's words match the regex of the file's line
# "// expect: <regex>". The second half matters: a file with a typing error does not compile either.
# A line "// standard: c++20" has it compiled as that instead of C++23. Each line that ends in
# "// refused" must be the place of an error.

file(STRINGS ${SOURCE} expect REGEX "^// expect: " LIMIT_COUNT 1)
if(expect STREQUAL "")
  message(FATAL_ERROR "${SOURCE} has no line \"// expect: <regex>\"")
endif()
string(REGEX REPLACE "^// expect: " "" expect "${expect}")

set(standard c++23)
file(STRINGS ${SOURCE} line REGEX "^// standard: " LIMIT_COUNT 1)
if(line)
  string(REGEX REPLACE "^// standard: " "" standard "${line}")
endif()

set(ENV{LC_ALL} C)
execute_process(COMMAND ${COMPILER} -std=${standard} ${FLAGS} -fsyntax-only ${SOURCE} RESULT_VARIABLE result
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, and must not")
endif()
cmake_path(GET SOURCE FILENAME name)
if(NOT output MATCHES "${expect}")
  message(FATAL_ERROR "${SOURCE} does not compile, but not for the reason \"${expect}\":\n${output}")
endif()

# What has a meaning in CMake's lists is no part of what is looked for.
file(READ ${SOURCE} text)
string(REGEX REPLACE "[][;]" "" text "${text}")
string(REPLACE "\n" ";" lines "${text}")
set(number 0)
foreach(line IN LISTS lines)
  math(EXPR number "${number} + 1")
  if(line MATCHES "// refused$" AND NOT output MATCHES "${name}:${number}:[0-9]+: error: ")
    message(FATAL_ERROR "${SOURCE}:${number} compiles, and must not:\n${output}")
  endif()
endforeach()
