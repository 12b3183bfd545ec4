# weft/http.hpp's parser is Boost.Beast's, which is headers only. It is optional: without it weft is
# built without HTTP. (The folder is a cache variable because the headers may be of any Boost that is
# somewhere; a cross build finds them only in its own root.)

find_path(WEFT_BOOST_INCLUDE_DIR boost/beast/http/basic_parser.hpp)
mark_as_advanced(WEFT_BOOST_INCLUDE_DIR)
set(WEFT_HTTP OFF)
if(WEFT_BOOST_INCLUDE_DIR)
  set(WEFT_HTTP ON)
else()
  message(STATUS "Boost.Beast not found (apt-get install libboost-dev): weft/http.hpp is left out")
endif()

# Gives the sources of `target` in src/http Boost's headers, as system headers.
function(weft_use_beast target)
  if(WEFT_HTTP)
    target_include_directories(${target} SYSTEM PRIVATE ${WEFT_BOOST_INCLUDE_DIR})
  endif()
endfunction()
