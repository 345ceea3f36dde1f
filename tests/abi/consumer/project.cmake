# SPDX-License-Identifier: Apache-2.0
# A project that uses an installed zoff and nothing of its source tree.
cmake_minimum_required(VERSION 3.16)
project(consumer LANGUAGES C)
find_package(zoff 0.1 REQUIRED COMPONENTS ${KIND})
if(KIND STREQUAL static)
  set(library zoff::static)
else()
  set(library zoff::zoff)
endif()
add_executable(consumer main.c)
target_link_libraries(consumer PRIVATE ${library} m)
