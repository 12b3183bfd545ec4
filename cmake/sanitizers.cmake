# WEFT_SANITIZE: the sanitizers to build with, as -fsanitize takes them.
#
# The flags hold for the whole tree and not just for weft's targets: GoogleTest, which is built from
# source for this reason, must be instrumented like the code it calls, or containers that cross the
# border are reported as overflows (ASan) and its locks are invisible (TSan).

set(WEFT_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address,undefined' or 'thread'")
set_property(CACHE WEFT_SANITIZE PROPERTY STRINGS "" "address,undefined" "thread")

if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${WEFT_SANITIZE})
endif()
