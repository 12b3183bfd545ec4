# GoogleTest, for our own tests from Debian's source (so that sanitizer and cross builds get one of
# their own kind), else an installed one if there is any.

if(TARGET GTest::gtest)
  # The project that we are a part of has it.
elseif(EXISTS ${gtest_source}/CMakeLists.txt AND WEFT_BUILD_TESTS)
  set(BUILD_GMOCK OFF CACHE BOOL "" FORCE)
  set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
  add_subdirectory(${gtest_source} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
  # Its own speed and its insides are not what is looked at here.
  target_compile_options(gtest PRIVATE -O1 -g0)
  target_compile_options(gtest_main PRIVATE -O1 -g0)
elseif(WEFT_BUILD_TESTS)
  message(FATAL_ERROR "GoogleTest's source is not in ${gtest_source}: run `make setup`, or do "
                      "without tests (-DBUILD_TESTING=OFF)")
else()
  find_package(GTest QUIET)
endif()
