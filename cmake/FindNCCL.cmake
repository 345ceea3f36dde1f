# SPDX-License-Identifier: Apache-2.0
# FindNCCL: NCCL_FOUND, NCCL_VERSION and the target NCCL::nccl. Looks at NCCL_ROOT (a variable, or of the environment), at the
# CUDA toolkit, and at the folder of pip's package, nvidia/nccl, which has libnccl.so.2 and no libnccl.so.
set(nccl_hints "")
foreach(folder IN ITEMS ${NCCL_ROOT} $ENV{NCCL_ROOT}) # also a virtual environment, or its site-packages
  file(GLOB of_pip LIST_DIRECTORIES TRUE ${folder}/lib/python3*/site-packages/nvidia/nccl ${folder}/nvidia/nccl)
  list(APPEND nccl_hints ${folder} ${of_pip})
endforeach()
foreach(folder IN LISTS CMAKE_PREFIX_PATH)
  file(GLOB of_pip LIST_DIRECTORIES TRUE ${folder}/lib/python3*/site-packages/nvidia/nccl)
  list(APPEND nccl_hints ${of_pip})
endforeach()
list(APPEND nccl_hints ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_BIN_DIR}/..)

# The library is the one beside the header, so that both are of one version.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_hints} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${NCCL_INCLUDE_DIR}/.. ${nccl_hints}
             PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE})
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

unset(NCCL_VERSION)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  list(JOIN nccl_lines " " nccl_lines)
  if(nccl_lines MATCHES "NCCL_MAJOR ([0-9]+).*NCCL_MINOR ([0-9]+).*NCCL_PATCH ([0-9]+)")
    set(NCCL_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl SHARED IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
