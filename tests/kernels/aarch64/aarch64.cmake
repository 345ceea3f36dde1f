# SPDX-License-Identifier: Apache-2.0
# Tests the aarch64 kernels on a machine of any kind: kernels_bits is built by the distribution's cross compiler and runs under
# qemu's user mode emulation. Included by tests/kernels/CMakeLists.txt. If a tool is missing, its tests are skipped.
find_program(ZOFF_AARCH64_GCC NAMES aarch64-linux-gnu-gcc DOC "Cross compiler of the kernels_bits.aarch64 tests")
find_program(ZOFF_QEMU_AARCH64 NAMES qemu-aarch64-static qemu-aarch64 DOC "Emulator of the kernels_bits.aarch64 tests")
mark_as_advanced(ZOFF_AARCH64_GCC ZOFF_QEMU_AARCH64)

# A cross compiler without the static C library of its target would break the build, so it counts as missing.
set(program libc6-dev-arm64-cross-NOTFOUND)
if(ZOFF_AARCH64_GCC)
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/aarch64-probe.c)
  file(WRITE ${probe} "#include <math.h>\n#include <omp.h>\nint main(int argc, char **argv)\n{\n"
                      "    (void)argv;\n    return omp_get_max_threads() < 1 || pow(argc, 2) < 1;\n}\n")
  execute_process(COMMAND ${ZOFF_AARCH64_GCC} -static -fopenmp ${probe} -o ${probe}.out -lm RESULT_VARIABLE failed
                  OUTPUT_QUIET ERROR_QUIET)
  if(NOT failed)
    include(ExternalProject)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/aarch64-source)
    set(build ${CMAKE_CURRENT_BINARY_DIR}/aarch64)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/project.cmake ${source}/CMakeLists.txt COPYONLY)
    ExternalProject_Add(kernels_bits_aarch64 SOURCE_DIR ${source} BINARY_DIR ${build} PREFIX ${build}-steps
      CMAKE_ARGS -DCMAKE_BUILD_TYPE=Release -DZOFF_ROOT=${PROJECT_SOURCE_DIR}
                 -DCMAKE_TOOLCHAIN_FILE=${PROJECT_SOURCE_DIR}/cmake/aarch64-linux-gnu.cmake
      BUILD_COMMAND ${CMAKE_COMMAND} --build <BINARY_DIR> BUILD_ALWAYS ON # the inner build itself knows what has changed
      INSTALL_COMMAND "" BUILD_BYPRODUCTS ${build}/kernels_bits)
    set(program ${build}/kernels_bits)
  endif()
else()
  set(program aarch64-linux-gnu-gcc-NOTFOUND)
endif()
set(qemu qemu-aarch64-static-NOTFOUND)
if(ZOFF_QEMU_AARCH64)
  set(qemu ${ZOFF_QEMU_AARCH64})
endif()

# A CPU without SVE proves that the other tables do not need it, and that the library does not assume SVE.
set(old_cpu -- ${qemu} -cpu cortex-a57 ${program})
set(each 1)
zoff_full_bits_test(aarch64.scalar compare ${bits}.scalar.1 scalar ${bits}.aarch64-scalar 1 ${old_cpu})
zoff_full_bits_test(aarch64.neon_all compare ${bits}.scalar.1 neon ${bits}.aarch64-neon_all 1 ${old_cpu})
set(each 8)
set(front "")
zoff_bits_test(aarch64.neon compare ${bits}.scalar.8 neon ${bits}.aarch64-neon 8 ${old_cpu})
zoff_bits_test(aarch64.chooses_neon chosen neon ${old_cpu})
zoff_bits_test(aarch64.chooses_sve chosen sve -- ${qemu} -cpu max ${program})
foreach(length IN ITEMS 128 256 512 2048)
  math(EXPR bytes "${length} / 8")
  set(on_sve -- ${qemu} -cpu max,sve-default-vector-length=${bytes} ${program})
  set(each 1)
  zoff_full_bits_test(aarch64.sve${length}_all compare ${bits}.scalar.1 sve:${length} ${bits}.aarch64-sve${length}_all 1 ${on_sve})
  if(length EQUAL 256)
    set(each 8)
    set(front "")
    zoff_bits_test(aarch64.sve256 compare ${bits}.scalar.8 sve:256 ${bits}.aarch64-sve256 8 ${on_sve})
  endif()
endforeach()
set(front "")
