# SPDX-License-Identifier: Apache-2.0
# Builds kernels_bits alone, as a static program, with the compiler of the toolchain file. It uses the real sources of cpu_adam
# and those of base that they need. This file becomes the CMakeLists.txt of a small project in the build folder; ZOFF_ROOT is
# the top of the source tree.
cmake_minimum_required(VERSION 3.25)
project(zoff_kernels_bits LANGUAGES C)

list(APPEND CMAKE_MODULE_PATH ${ZOFF_ROOT}/cmake)
include(checks)
include(CheckLinkerFlag)

file(GLOB room CONFIGURE_DEPENDS ${ZOFF_ROOT}/src/cpu_adam/*.c)
file(GLOB base CONFIGURE_DEPENDS ${ZOFF_ROOT}/src/base/*.c)
# Leave out sources that use libnuma, because a cross compiler has none. Nothing here calls them; otherwise the program would
# not link.
foreach(source IN LISTS base)
  file(STRINGS ${source} numa REGEX "#include <numa(if)?\\.h>")
  if(numa)
    list(REMOVE_ITEM base ${source})
  endif()
endforeach()

add_library(zoff_base STATIC ${base})
add_library(zoff_cpu_adam STATIC ${room})
target_link_libraries(zoff_cpu_adam PUBLIC zoff_base m)
target_include_directories(zoff_base PUBLIC ${ZOFF_ROOT}/src/base ${ZOFF_ROOT}/include)
target_include_directories(zoff_cpu_adam PUBLIC ${ZOFF_ROOT}/src/cpu_adam)
foreach(library IN ITEMS base cpu_adam)
  target_compile_options(zoff_${library} PRIVATE ${ZOFF_C_WARNINGS} -fopenmp)
  target_compile_definitions(zoff_${library} PRIVATE ZOFF_BUILD ZOFF_ROOM="${library}")
endforeach()
include(isa)

add_executable(kernels_bits ${ZOFF_ROOT}/tests/kernels/kernels_bits.c ${ZOFF_ROOT}/tests/kernels/bits_data.c)
target_compile_options(kernels_bits PRIVATE ${ZOFF_C_WARNINGS})
target_link_libraries(kernels_bits PRIVATE zoff_cpu_adam)
target_link_options(kernels_bits PRIVATE -static -fopenmp) # a flag, because CMake would name the shared libgomp
# The linker warns each time about dlopen() in libgomp.a, which is used only for accelerators, and not here.
check_linker_flag(C LINKER:--no-warnings ZOFF_LINKER_CAN_BE_QUIET)
if(ZOFF_LINKER_CAN_BE_QUIET)
  target_link_options(kernels_bits PRIVATE LINKER:--no-warnings)
endif()
