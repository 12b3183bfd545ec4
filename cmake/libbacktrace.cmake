# libbacktrace turns addresses into function, file and line. It is optional: without it a backtrace
# shows addresses only.
#
# GCC ships it as a static library beside libgcc and the header beside its own stddef.h, so GCC finds
# both by itself. Clang searches GCC's library folder but not its header folder, and must search it
# last, because that folder also holds GCC's forms of the headers Clang has its own forms of. So:
# -idirafter, and for the one file that includes <backtrace.h>.
#
# It is linked by name (-lbacktrace) and not by path, so that the installed package works with
# another version of the compiler.

include(CMakePushCheckState)
include(CheckCXXSourceCompiles)

function(weft_find_libbacktrace)
  if(DEFINED WEFT_HAVE_LIBBACKTRACE)
    return()
  endif()
  set(flags "")
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(gcc gcc)
    if(WEFT_CROSS_TRIPLE)
      set(gcc ${WEFT_CROSS_TRIPLE}-gcc)
    endif()
    find_program(WEFT_GCC NAMES ${gcc})
    mark_as_advanced(WEFT_GCC)
    if(WEFT_GCC)
      execute_process(COMMAND ${WEFT_GCC} -print-file-name=include OUTPUT_VARIABLE dir
                      OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(EXISTS ${dir}/backtrace.h)
        set(flags -idirafter ${dir})
      endif()
    endif()
  endif()

  cmake_push_check_state(RESET)
  list(JOIN flags " " CMAKE_REQUIRED_FLAGS)
  set(CMAKE_REQUIRED_LIBRARIES backtrace)
  check_cxx_source_compiles(
    "#include <backtrace.h>
     int main() { return backtrace_create_state(nullptr, 0, nullptr, nullptr) == nullptr; }"
    WEFT_HAVE_LIBBACKTRACE)
  cmake_pop_check_state()
  set(WEFT_LIBBACKTRACE_FLAGS "${flags}" CACHE INTERNAL "What the user of <backtrace.h> needs")
endfunction()

# Links `target` with libbacktrace, if there is one; `source` is its file that uses it.
function(weft_use_libbacktrace target source)
  weft_find_libbacktrace()
  if(NOT WEFT_HAVE_LIBBACKTRACE)
    message(STATUS "libbacktrace not found: backtraces will show addresses only")
    return()
  endif()
  target_compile_definitions(${target} PRIVATE WEFT_HAVE_LIBBACKTRACE=1)
  target_link_libraries(${target} PRIVATE backtrace)
  # What libweft.so takes in stays inside: the program may have a libbacktrace of its own.
  target_link_options(${target} PRIVATE LINKER:--exclude-libs,libbacktrace.a)
  set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${WEFT_LIBBACKTRACE_FLAGS}")
endfunction()
