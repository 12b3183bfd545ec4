# liburing: files through io_uring. It is optional: without it, or where the kernel does not permit
# it, files use blocking calls.

include(CMakePushCheckState)
include(CheckCXXSourceCompiles)

# Links `target` with liburing, if there is one, and tells in `found` whether there is.
function(weft_use_liburing target found)
  cmake_push_check_state(RESET)
  set(CMAKE_REQUIRED_LIBRARIES uring)
  check_cxx_source_compiles(
    "#include <liburing.h>
     int main() { io_uring r; return io_uring_queue_init(1, &r, IORING_SETUP_DEFER_TASKRUN); }"
    WEFT_HAVE_LIBURING)
  cmake_pop_check_state()
  if(WEFT_HAVE_LIBURING)
    target_link_libraries(${target} PRIVATE uring)
  else()
    message(STATUS "liburing not found: files use blocking calls")
  endif()
  set(${found} ${WEFT_HAVE_LIBURING} PARENT_SCOPE)
endfunction()
