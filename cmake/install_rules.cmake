# What `cmake --install` writes: the headers, the library, the CMake package and weft.pc. All of it
# finds itself relative to where it lies, so the prefix may be chosen at install time.

include(CMakePackageConfigHelpers)

install(TARGETS weft EXPORT weft-targets)
# The test library is a component of its own: find_package(weft COMPONENTS test).
if(TARGET weft_test)
  install(TARGETS weft_test EXPORT weft-test-targets)
endif()
install(DIRECTORY include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
        PATTERN "*.hpp")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${package_dir})
set(WEFT_TEST_USES_GTEST OFF)
if(TARGET weft_test)
  install(EXPORT weft-test-targets NAMESPACE weft:: DESTINATION ${package_dir})
  if(TARGET GTest::gtest)
    set(WEFT_TEST_USES_GTEST ON)
    set(WEFT_TEST_PC_REQUIRES "weft gtest")
  else()
    set(WEFT_TEST_PC_REQUIRES "weft")
  endif()
endif()
configure_package_config_file(cmake/weft-config.cmake.in weft-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may break its users.
write_basic_package_version_file(weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weft-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/weft-config-version.cmake DESTINATION ${package_dir})

set(pc_needs "-pthread")
if(WEFT_HAVE_LIBBACKTRACE)
  string(PREPEND pc_needs "-lbacktrace ")
endif()
if(WEFT_CARES AND WEFT_HAVE_CARES)
  string(PREPEND pc_needs "-lcares ")
endif()
if(WEFT_HAVE_LIBURING)
  string(PREPEND pc_needs "-luring ")
endif()
if(BUILD_SHARED_LIBS)
  set(WEFT_PC_LIBS "-pthread")
  set(WEFT_PC_LIBS_PRIVATE "${pc_needs}")
else()
  # The only library there is to link with is static, so even a plain --libs must name its needs.
  set(WEFT_PC_LIBS "${pc_needs}")
  set(WEFT_PC_LIBS_PRIVATE "")
endif()
set(WEFT_PC_CFLAGS "-pthread")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(JOIN WEFT_STACK_CLASH_GNU " " clash)
  string(APPEND WEFT_PC_CFLAGS " ${clash}")
endif()
if(WEFT_ASSERTIONS)
  string(APPEND WEFT_PC_CFLAGS " -DWEFT_ASSERTIONS=1")
endif()
file(RELATIVE_PATH WEFT_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" WEFT_PC_PREFIX "${WEFT_PC_PREFIX}")
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weft.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET weft_test)
  configure_file(cmake/weft_test.pc.in weft_test.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weft_test.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
