# SPDX-License-Identifier: Apache-2.0
# Compile the kernels of cpu_adam once for each instruction set. Only these files have ISA flags. The flags name features one
# by one, so that a build of one machine runs on another. LTO would mix the flags again. Under AddressSanitizer, -O2 with full
# debug information compiles five times as long, and its checks are calls in functions of this size. UndefinedBehaviorSanitizer
# checks the scalar kernels only: the others are the same bodies.
set(zoff_isa_optimize $<IF:$<CONFIG:Debug>,-Og,-O3>)
if(ZOFF_SANITIZE MATCHES address)
  set(zoff_isa_optimize -O1 -g1 --param=asan-instrumentation-with-call-threshold=0)
  if(CMAKE_C_COMPILER_ID MATCHES Clang)
    set(zoff_isa_optimize -O1 -g1 -mllvm -asan-instrumentation-with-call-threshold=0)
  endif()
elseif(ZOFF_SANITIZE)
  set(zoff_isa_optimize -O2 -g1)
endif()
function(zoff_isa name)
  set(source ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../src/cpu_adam/isa/kernels_${name}.c)
  target_sources(zoff_cpu_adam PRIVATE ${source})
  if(ZOFF_SANITIZE MATCHES address AND NOT name STREQUAL scalar)
    list(APPEND ARGN -fno-sanitize=undefined)
  endif()
  set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${zoff_isa_optimize};-fno-lto;${ARGN}")
endfunction()

zoff_isa(scalar)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(avx2 -mavx2 -mfma -mf16c)
  zoff_isa(avx2 ${avx2})
  zoff_isa(avx2_pairs ${avx2})
  zoff_isa(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
  zoff_isa(avx512_pairs ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  zoff_isa(neon) # part of every such CPU
  zoff_isa(sve -march=armv8-a+sve) # there is no flag that adds a feature to what the compiler was told before
endif()
