# SPDX-License-Identifier: Apache-2.0
# Folders whose targets a plain `cmake --build` leaves out: the library and the tool are what a user waits for.

# zoff_targets_below(FOLDER OUT): every target that FOLDER and the folders below it define.
function(zoff_targets_below folder out)
  get_directory_property(targets DIRECTORY ${folder} BUILDSYSTEM_TARGETS)
  get_directory_property(below DIRECTORY ${folder} SUBDIRECTORIES)
  foreach(next IN LISTS below)
    zoff_targets_below(${next} more)
    list(APPEND targets ${more})
  endforeach()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()

# zoff_on_demand(FOLDER): the target FOLDER builds all that FOLDER defines; that of tests is `check`, and also builds what the
# tests start.
function(zoff_on_demand folder)
  add_subdirectory(${folder})
  zoff_targets_below(${CMAKE_CURRENT_SOURCE_DIR}/${folder} targets)
  # The targets, not the folder: the installation would leave out all rules of an excluded folder.
  foreach(target IN LISTS targets)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endforeach()
  if(folder STREQUAL "tests")
    add_custom_target(check DEPENDS ${targets})
    foreach(plugin IN ITEMS zoff_mpi zoff_ucx)
      if(TARGET ${plugin})
        add_dependencies(check ${plugin})
      endif()
    endforeach()
    if(NOT ZOFF_SANITIZE MATCHES thread)
      add_dependencies(check zoff zoff_static zoff_tool cuda examples)
    endif()
    if(NOT ZOFF_SANITIZE)
      add_dependencies(check bench)
    endif()
  else()
    add_custom_target(${folder} DEPENDS ${targets})
  endif()
endfunction()
