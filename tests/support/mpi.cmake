# SPDX-License-Identifier: Apache-2.0
# Programs that are ranks of an MPI job, and the tests that start them. Included only if CMake has found MPI.

# A program that is a rank of a job.
function(zoff_rank name)
  cmake_parse_arguments(ARG "" "" "ALONE" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE ${ZOFF_WARNINGS} $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
  target_link_libraries(${name} PRIVATE zoff_test_support)
  if(ARGN MATCHES "[.]cc")
    target_precompile_headers(${name} REUSE_FROM zoff_test_headers)
    zoff_unity(${name} ${ARG_ALONE})
  endif()
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON) # zoff looks for the symbols of libmpi in the program
endfunction()
# Allow more ranks than cores, and root, on Open MPI 4 and 5. Leaks of Open MPI itself are not reported.
set(mpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_btl=self,vader,tcp ZOFF_PLUGIN_PATH=$<TARGET_FILE_DIR:zoff_mpi>
    ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1)
function(zoff_mpi_test name)
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/in-time ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS "comm;zero;mpi" TIMEOUT 1830 COST 10 ENVIRONMENT "${mpi_environment}")
endfunction()
