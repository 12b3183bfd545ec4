# weft_own_target(target): the language level and the warnings of everything written here, and of
# nothing that comes from elsewhere (GoogleTest, google-benchmark).
function(weft_own_target target)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 23 CXX_STANDARD_REQUIRED ON
                                             CXX_EXTENSIONS OFF)
  set(warnings -Wall -Wextra -Wshadow -Wconversion)
  if(WEFT_WERROR)
    list(APPEND warnings -Werror)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
endfunction()
