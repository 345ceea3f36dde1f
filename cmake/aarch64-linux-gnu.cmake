# SPDX-License-Identifier: Apache-2.0
# Toolchain file: aarch64 with the distribution's cross compiler (gcc-aarch64-linux-gnu). The programs run on such a machine,
# or here under qemu's user mode emulation if it is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# Look for libraries and headers of the target only, and for programs of this machine only.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

find_program(ZOFF_QEMU_AARCH64 NAMES qemu-aarch64-static qemu-aarch64)
if(ZOFF_QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${ZOFF_QEMU_AARCH64})
endif()
