# Toolchain: aarch64 Linux from another machine, with Debian's g++-aarch64-linux-gnu. Programs run
# under qemu-user, so ctest works as it does at home.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(WEFT_CROSS_TRIPLE aarch64-linux-gnu)

set(CMAKE_C_COMPILER ${WEFT_CROSS_TRIPLE}-gcc)
set(CMAKE_CXX_COMPILER ${WEFT_CROSS_TRIPLE}-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;/usr/${WEFT_CROSS_TRIPLE}")

set(CMAKE_FIND_ROOT_PATH /usr/${WEFT_CROSS_TRIPLE})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
