# weft_header_check(name base prefix headers...): compiles every header alone, twice in one file.
#
# One translation unit per header, written into the build tree, in an object library `name`. A header
# that forgot an include or its #pragma once fails here and not at the first user who includes it
# first. `base` is the folder the headers are included from; `prefix` is < or ", the way they are.
# The target weft_header_check builds it.
function(weft_header_check name base prefix)
  set(suffix "${prefix}")
  if(prefix STREQUAL "<")
    set(suffix ">")
  endif()
  set(units "")
  foreach(header ${ARGN})
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${base})
    string(MAKE_C_IDENTIFIER ${header} unit)
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/${name}/${unit}.cpp)
    set(line "#include ${prefix}${header}${suffix}\n")
    file(CONFIGURE OUTPUT ${unit} CONTENT "${line}${line}" @ONLY)
    list(APPEND units ${unit})
  endforeach()
  if(units)
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${units})
    add_dependencies(weft_header_check ${name})
    weft_own_target(${name})
    target_compile_options(${name} PRIVATE -O0 -g0)
    target_link_libraries(${name} PRIVATE weft::weft)
  endif()
endfunction()
