# cmake -DBUILD_DIR= -DWORK_DIR= -DGENERATOR= -DBUILD_TYPE= -DCXX= -DPKG_CONFIG= -DLIBDIR= -P test.cmake
#
# Installs weft into an empty folder and uses it from there as a stranger would, by find_package and
# by pkg-config. Fails if a header is not installed, if the package names a path of the build tree,
# or if the library's own needs are not passed on.

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: ${result}\n${output}")
  endif()
endfunction()

if(NOT PKG_CONFIG)
  message(FATAL_ERROR "pkg-config is missing: run `make setup`")
endif()

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

step(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/cmake -G ${GENERATOR}
     -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${prefix})
step(${CMAKE_COMMAND} --build ${WORK_DIR}/cmake)
step(${WORK_DIR}/cmake/consumer)
step(${WORK_DIR}/cmake/test_consumer)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs weft OUTPUT_VARIABLE flags
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
step(${CXX} -std=c++23 ${CMAKE_CURRENT_LIST_DIR}/consumer.cpp -o ${WORK_DIR}/consumer ${flags}
     -Wl,-rpath,${prefix}/${LIBDIR})
step(${WORK_DIR}/consumer)

# GoogleTest has a library of its own on the path of the linker.
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs weft_test OUTPUT_VARIABLE flags
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
step(${CXX} -std=c++23 ${CMAKE_CURRENT_LIST_DIR}/test_consumer.cpp -o ${WORK_DIR}/test_consumer
     ${flags})
step(${WORK_DIR}/test_consumer)
