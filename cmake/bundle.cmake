# SPDX-License-Identifier: Apache-2.0
# The parts that scripts/gpu-bundle takes to a machine with a GPU. build/gpu-bundle.plan has a line for each program and
# library, "kind name file argument ...", and the target gpu_bundle_parts builds them. Tests over an accelerator add
# themselves: zoff_cuda_test() appends to ZOFF_GPU_TESTS. This file lists the others, and packs those whose target exists.
#     gpu      a test over the accelerator "cuda"       cpu      one of the kernels or the memory of this machine
#     bits     kernels_bits, compared with its own      bench    a benchmark, whose JSON is kept
#     ranks    joined by NCCL, in so many processes as the runner starts
#     tool     run by name                              library  lies in lib/
if(NOT ZOFF_HAVE_TESTS OR ZOFF_SANITIZE OR NOT ZOFF_HAVE_CUDA)
  return()
endif()
get_property(plan GLOBAL PROPERTY ZOFF_GPU_TESTS)
list(APPEND plan "cpu kernels_test kernels_test" "cpu cpu_adam_test cpu_adam_test" "cpu accuracy_test accuracy_test"
                 "cpu numa_places numa_places" "bits kernels_bits kernels_bits"
                 "bench device device" "bench cpu_adam cpu_adam" "bench step step" "bench aio aio"
                 "ranks nccl_rank nccl_rank" "ranks nccl_parity_rank nccl_parity_rank" "ranks comm_contract_nccl comm_contract_nccl"
                 "tool zoff zoff_tool" "tool gpt gpt_without_mpi" "tool cuda_trainer cuda_trainer"
                 "library zoff zoff" "library zoff_cuda zoff_cuda" "library zoff_nccl zoff_nccl")
set(text "")
set(parts "")
foreach(line IN LISTS plan)
  string(REPLACE " " ";" words "${line}")
  list(POP_FRONT words kind name target)
  if(TARGET ${target})
    list(JOIN words " " arguments)
    string(APPEND text "${kind} ${name} $<TARGET_FILE:${target}> ${arguments}\n")
    list(APPEND parts ${target})
  endif()
endforeach()
list(REMOVE_DUPLICATES parts)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/gpu-bundle.plan CONTENT "${text}")
add_custom_target(gpu_bundle_parts DEPENDS ${parts})
