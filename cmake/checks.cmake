# SPDX-License-Identifier: Apache-2.0
# Flags that every target of this project gets: dialect, warnings, sanitizers, hidden symbols.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON) # otherwise a program has the name of the build folder in it, and other bytes in each
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()

# Fused multiply-add happens where the source says so and nowhere else: that is what makes the bits
# equal over instruction sets and compilers (docs/adr/0004-sums.md).
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off> $<$<COMPILE_LANGUAGE:C,CXX>:-fno-math-errno>)
add_compile_definitions(_GNU_SOURCE)

# The presets make warnings errors. Who configures without one, as a package does, may have a compiler that warns of more.
set(ZOFF_WARNINGS -Wall -Wextra -Wshadow -Wvla -Wundef)
# Functions of a table get the arguments of the table, which not each of them needs.
set(ZOFF_C_WARNINGS ${ZOFF_WARNINGS} -Wno-unused-parameter -Wconversion -Wstrict-prototypes -Wmissing-prototypes)

# C++ is tests: they are compiled once and run once, so what the compiler saves counts as much as what they take.
add_compile_options($<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:$<IF:$<CXX_COMPILER_ID:GNU>,-Og,-O1>>)

set(ZOFF_IS_SANITIZED OFF) # for generator expressions, which cannot hold a list with commas
if(ZOFF_SANITIZE)
  set(ZOFF_IS_SANITIZED ON)
  # Beside another sanitizer, look for undefined behaviour only in C, the code under test: in the C++ of the tests it would
  # double the time to compile. Line numbers are all of their debug information that is needed.
  # The same is true of the counters of libFuzzer.
  string(REGEX REPLACE ",(undefined|fuzzer-no-link)" "" of_tests "${ZOFF_SANITIZE}")
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=${ZOFF_SANITIZE}> $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${of_tests}>
                      $<$<COMPILE_LANGUAGE:CXX>:-g1>)
  foreach(option IN ITEMS -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:${option}>)
  endforeach()
  add_link_options(-fsanitize=${ZOFF_SANITIZE})
  # Compilers have names of their own for that.
  add_compile_definitions($<$<COMPILE_LANGUAGE:CXX>:ZOFF_TEST_SANITIZED> $<$<COMPILE_LANGUAGE:CXX>:ZOFF_TEST_SANITIZED_$<UPPER_CASE:${of_tests}>>)
endif()
