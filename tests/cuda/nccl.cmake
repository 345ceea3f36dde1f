# SPDX-License-Identifier: Apache-2.0
# The communicator "nccl": the suite of all communicators, the engine's parity, and parts that only NCCL needs. Runs over the
# CUDA and the NCCL made of threads. As gpu.NAME it runs over the real ones and skips, with a reason, tests for which there are
# too few GPUs.
add_library(nccl_on_threads SHARED host/nccl.cc)
target_include_directories(nccl_on_threads PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/host $<TARGET_PROPERTY:NCCL::nccl,INTERFACE_INCLUDE_DIRECTORIES>
                                                   ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(nccl_on_threads PRIVATE -Wall -Wextra -Werror -O2)
target_link_libraries(nccl_on_threads PRIVATE cuda_on_threads)
target_link_options(nccl_on_threads PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/host/nccl.map)
set_target_properties(nccl_on_threads PROPERTIES OUTPUT_NAME nccl SOVERSION 2 LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:cuda_on_threads>)

set(nccl_plugins "ZOFF_PLUGIN_PATH=$<TARGET_FILE_DIR:zoff_nccl>")
set(nccl_on_threads "${nccl_plugins};ZOFF_TEST_DEVICES=2;LD_LIBRARY_PATH=$<TARGET_FILE_DIR:nccl_on_threads>")

add_executable(comm_contract_nccl ${PROJECT_SOURCE_DIR}/tests/contract/comm/comm_contract_test.cc
               ${PROJECT_SOURCE_DIR}/tests/contract/comm/comm_users_test.cc ${PROJECT_SOURCE_DIR}/tests/contract/comm/comm_groups_test.cc)
target_compile_definitions(comm_contract_nccl PRIVATE ZOFF_RANKS_NCCL)
add_executable(nccl_plugin nccl_test.cc nccl_join_test.cc nccl_sum_test.cc)
add_executable(nccl_adds nccl_adds_test.cc)
target_include_directories(nccl_plugin PRIVATE ${CUDAToolkit_INCLUDE_DIRS} $<TARGET_PROPERTY:NCCL::nccl,INTERFACE_INCLUDE_DIRECTORIES>)
foreach(program IN ITEMS comm_contract_nccl nccl_plugin nccl_adds)
  target_include_directories(${program} PRIVATE ${room_includes} ${PROJECT_SOURCE_DIR}/tests/support ${PROJECT_SOURCE_DIR}/tests/contract/comm)
  target_compile_options(${program} PRIVATE ${ZOFF_WARNINGS} -Wno-missing-field-initializers)
  target_link_libraries(${program} PRIVATE zoff_test_support GTest::gtest_main)
  target_precompile_headers(${program} REUSE_FROM zoff_test_headers)
  zoff_unity(${program} ${PROJECT_SOURCE_DIR}/tests/contract/comm/comm_groups_test.cc)
endforeach()

# Sanitizers slow them down, and find in three ranks and in one program what others would show.
set(kept 1 3)
if(ZOFF_SANITIZE)
  set(full ${in_full})
endif()
foreach(ranks IN ITEMS 1 2 3 4)
  set(front)
  if(NOT ranks IN_LIST kept)
    set(front ${full})
  endif()
  add_test(NAME cuda.comm_nccl_${ranks} COMMAND ${front} $<TARGET_FILE:comm_contract_nccl> --gtest_brief=1 --gtest_filter=*/nccl${ranks})
  add_test(NAME gpu.comm_nccl_${ranks} COMMAND comm_contract_nccl --gtest_filter=*/nccl${ranks})
endforeach()
add_test(NAME cuda.nccl_plugin COMMAND nccl_plugin --gtest_brief=1)
set(cells *)
if(ZOFF_SANITIZE)
  set(cells *stage2_*:*stage0_bf16_world2_*:NcclAddsFaults.*)
endif()
add_test(NAME cuda.nccl_adds COMMAND nccl_adds --gtest_brief=1 --gtest_filter=${cells})
# Some cells of each kind of stage, tier, type and owner. All cells would take three minutes on two cores.
set(cells *stage2_*_world2_*:*stage3_*_bf16_world3_*:*stage0_host_*_world3_*:*stage1_nvme_fp32_*:*_wire_*)
if(ZOFF_SANITIZE)
  set(cells *stage2_nvme_*_world2_*:*stage3_nvme_bf16_world3_*:*stage0_host_bf16_world3_*:*_wire_*)
endif()
add_test(NAME cuda.e2e_ranks_nccl COMMAND e2e_ranks --gtest_brief=1 --gtest_filter=${cells}-*onDevice*)
add_test(NAME cuda.e2e_ranks_nccl_life COMMAND ${full} $<TARGET_FILE:e2e_ranks_life> --gtest_brief=1)
add_test(NAME cuda.e2e_ranks_nccl_persist COMMAND e2e_ranks_persist --gtest_brief=1)
# Several engines on one communicator share its lanes.
add_test(NAME cuda.identity_nccl COMMAND identity --gtest_brief=1
         --gtest_filter=*/threads:*/threads_progress_thread:IdentityRandom*-*DifferentCalls*:*HasDestroyed*:*OppositeOrder*:*AnotherSlice*)
# Weights and gradients are on a CUDA device, too, which this communicator can always access.
set(cells *_bf16_*onDeviceReached*:*_bf16_*Reached_groupsOf2:RanksMixed*:RanksDeviceTierSeal*:*RanksDeviceTierFaults*:*RanksDeviceTier.*world2_ratio25)
if(ZOFF_SANITIZE)
  set(cells *_host_bf16_*onDeviceReached*:*_bf16_world4_*keptOnReached_groupsOf2:RanksMixed*:*RanksDeviceTier.*world2_ratio25)
endif()
add_test(NAME cuda.e2e_ranks_nccl_device COMMAND e2e_ranks --gtest_brief=1 --gtest_filter=${cells})
set(tests comm_nccl_1 comm_nccl_2 comm_nccl_3 comm_nccl_4 nccl_plugin nccl_adds e2e_ranks_nccl e2e_ranks_nccl_life e2e_ranks_nccl_persist e2e_ranks_nccl_device identity_nccl)
foreach(name IN LISTS tests)
  set_tests_properties(cuda.${name} PROPERTIES LABELS "comm;cuda" TIMEOUT 600 SKIP_RETURN_CODE 77 FAIL_REGULAR_EXPRESSION "SKIPPED| 0 tests from"
    ENVIRONMENT "ZOFF_TEST_COMM=nccl;ZOFF_TEST_ACCEL=cuda;${nccl_on_threads}")
endforeach()
zoff_ten_cells(cuda.nccl_adds cuda.e2e_ranks_nccl cuda.e2e_ranks_nccl_device)
zoff_late_ranks_fail(cuda.comm_nccl_2 cuda.comm_nccl_3 cuda.comm_nccl_4 cuda.nccl_plugin)
foreach(ranks IN ITEMS 1 2 3 4)
  set_tests_properties(gpu.comm_nccl_${ranks} PROPERTIES LABELS "comm;cuda;gpu" TIMEOUT 300 RUN_SERIAL ON
    SKIP_REGULAR_EXPRESSION "no communicator .nccl. here;was asked for" ENVIRONMENT "${nccl_plugins}")
endforeach()

# Ranks that are processes and share the available GPUs.
add_executable(nccl_rank nccl_rank.c)
target_link_libraries(nccl_rank PRIVATE CUDA::cudart)
add_executable(nccl_parity_rank nccl_parity_main.cc nccl_adds_test.cc ${PROJECT_SOURCE_DIR}/tests/e2e/ranks/ranks_parity_test.cc)
target_link_libraries(nccl_parity_rank PRIVATE GTest::gtest)
target_precompile_headers(nccl_parity_rank REUSE_FROM zoff_test_headers)
foreach(program IN ITEMS nccl_rank nccl_parity_rank)
  target_include_directories(${program} PRIVATE ${room_includes} ${PROJECT_SOURCE_DIR}/tests/support)
  target_compile_options(${program} PRIVATE ${ZOFF_WARNINGS} -Wno-missing-field-initializers)
  target_link_libraries(${program} PRIVATE zoff_test_support)
endforeach()
set(nccl_launch ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1 ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/nccl_ranks.py)

# Over threads each process can only be a group of one.
add_test(NAME cuda.nccl_ranks_works_1 COMMAND ${nccl_launch} 1 $<TARGET_FILE:nccl_rank> nccl works 20)
add_test(NAME cuda.nccl_ranks_parity_1 COMMAND ${nccl_launch} 1 $<TARGET_FILE:nccl_parity_rank> --gtest_brief=1
         --gtest_filter=*stage1_*_world1_accumulate1_*)
set_tests_properties(cuda.nccl_ranks_works_1 cuda.nccl_ranks_parity_1 PROPERTIES LABELS "comm;cuda" TIMEOUT 60 ENVIRONMENT "${nccl_on_threads}")

foreach(ranks IN ITEMS 2 4)
  foreach(case IN ITEMS works differs dies)
    add_test(NAME gpu.nccl_ranks_${case}_${ranks} COMMAND ${nccl_launch} ${ranks} $<TARGET_FILE:nccl_rank> nccl ${case} 20)
    list(APPEND nccl_gpu_tests gpu.nccl_ranks_${case}_${ranks})
  endforeach()
  add_test(NAME gpu.nccl_ranks_parity_${ranks} COMMAND ${nccl_launch} ${ranks} $<TARGET_FILE:nccl_parity_rank> --gtest_brief=1
           --gtest_filter=*_world${ranks}_*)
  list(APPEND nccl_gpu_tests gpu.nccl_ranks_parity_${ranks})
endforeach()
set_tests_properties(${nccl_gpu_tests} PROPERTIES LABELS "comm;cuda;gpu" TIMEOUT 660 RUN_SERIAL ON SKIP_RETURN_CODE 77
                     ENVIRONMENT "${nccl_plugins}")
