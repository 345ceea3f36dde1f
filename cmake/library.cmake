# SPDX-License-Identifier: Apache-2.0
# libzoff.so and libzoff.a: the same objects, linked twice; installation for pkg-config and CMake.
include(CMakePackageConfigHelpers)
get_property(rooms GLOBAL PROPERTY ZOFF_ROOMS)
set(objects "")
foreach(room IN LISTS rooms)
  list(APPEND objects $<TARGET_OBJECTS:zoff_${room}>)
endforeach()
set(zoff_links PkgConfig::liburing PkgConfig::numa PkgConfig::jansson PkgConfig::libxxhash Threads::Threads m ${CMAKE_DL_LIBS})

add_library(zoff SHARED ${objects})
add_library(zoff_static STATIC ${objects})
add_library(zoff::zoff ALIAS zoff)
add_library(zoff::static ALIAS zoff_static)
set_target_properties(zoff PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(zoff_static PROPERTIES OUTPUT_NAME zoff EXPORT_NAME static)
# Nothing is left open, and nothing that comes in from a static library goes out again as ours.
# (Clang's sanitizers are linked into the program alone, so that a library built with them must leave their symbols open.)
target_link_options(zoff PRIVATE $<$<NOT:$<AND:$<BOOL:${ZOFF_IS_SANITIZED}>,$<C_COMPILER_ID:Clang>>>:-Wl,--no-undefined>
                                 -Wl,--exclude-libs,ALL
                                 -Wl,-z,nodelete) # threads of the team sleep in it
set(zoff_map ${CMAKE_CURRENT_SOURCE_DIR}/src/libzoff.map)
target_link_options(zoff PRIVATE -Wl,--version-script,${zoff_map})
set_property(TARGET zoff APPEND PROPERTY LINK_DEPENDS ${zoff_map})
target_link_libraries(zoff PRIVATE ${zoff_links})
# The names of imported targets mean nothing on the machine that links libzoff.a later: there, zoffConfig.cmake finds the same
# libraries anew and calls them zoff::static_dependencies.
foreach(link IN LISTS zoff_links)
  target_link_libraries(zoff_static PRIVATE $<BUILD_INTERFACE:${link}>)
endforeach()
target_link_libraries(zoff_static INTERFACE $<INSTALL_INTERFACE:zoff::static_dependencies>)
foreach(target IN ITEMS zoff zoff_static)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()

# The libraries that libzoff.a needs, as linker flags.
set(zoff_runtime pthread m ${CMAKE_DL_LIBS})
set(zoff_modules liburing numa jansson libxxhash)
set(zoff_private_flags "")
foreach(module IN LISTS zoff_modules)
  list(APPEND zoff_private_flags ${${module}_STATIC_LDFLAGS})
endforeach()
foreach(library IN LISTS zoff_runtime)
  list(APPEND zoff_private_flags -l${library})
endforeach()
list(REMOVE_DUPLICATES zoff_private_flags)
list(JOIN zoff_private_flags " " zoff_private_flags)
list(JOIN zoff_modules " " zoff_modules)
list(JOIN zoff_runtime " " zoff_runtime)

# zoff.pc names its folders from where it lies, so that an installed tree may be moved.
set(zoff_pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(zoff_pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(zoff_pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH up /prefix/${zoff_pkgconfig_folder} /prefix)
  string(REGEX REPLACE "/$" "" up ${up})
  set(zoff_pc_prefix "\${pcfiledir}/${up}")
  set(zoff_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
foreach(folder IN ITEMS INCLUDEDIR DATADIR)
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${folder}})
    set(zoff_pc_${folder} ${CMAKE_INSTALL_${folder}})
  else()
    set(zoff_pc_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  endif()
endforeach()
foreach(name IN ITEMS zoff zoff-static)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc @ONLY)
endforeach()

set(zoff_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/zoff)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/zoffConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/zoffConfig.cmake
                              INSTALL_DESTINATION ${zoff_package_folder} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may change what is there.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/zoffConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/zoff DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
install(TARGETS zoff EXPORT zoffTargets)
install(TARGETS zoff_static EXPORT zoffStaticTargets)
install(EXPORT zoffTargets NAMESPACE zoff:: DESTINATION ${zoff_package_folder})
install(EXPORT zoffStaticTargets NAMESPACE zoff:: DESTINATION ${zoff_package_folder})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/zoffConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/zoffConfigVersion.cmake
        DESTINATION ${zoff_package_folder})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/zoff.pc ${CMAKE_CURRENT_BINARY_DIR}/zoff-static.pc DESTINATION ${zoff_pkgconfig_folder})

# The description of the API, and bindings for other languages. A program includes <zoff/zoff.hpp>; the others are compiled with it.
install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/share/zoff/api.json DESTINATION ${CMAKE_INSTALL_DATADIR}/zoff)
install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/bindings/cpp/zoff.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/zoff)
foreach(file IN ITEMS cpp/train.cc fortran/train.f90 fortran/zoff.f90 rust/zoff-sys/Cargo.toml rust/zoff-sys/build.rs
                      rust/zoff-sys/examples/train.rs rust/zoff-sys/src/lib.rs rust/zoff-sys/tests/layout.rs)
  get_filename_component(folder ${file} DIRECTORY)
  install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/bindings/${file} DESTINATION ${CMAKE_INSTALL_DATADIR}/zoff/bindings/${folder})
endforeach()

# Manual pages, and for each further function of a page a page that leads there.
file(GLOB zoff_man_pages CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/docs/man/*.[137])
foreach(page IN LISTS zoff_man_pages)
  get_filename_component(name ${page} NAME)
  string(REGEX REPLACE ".*[.]" "" section ${name})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  file(STRINGS ${page} names REGEX "^[.]Nm zoff_")
  foreach(line IN LISTS names)
    string(REGEX REPLACE "^[.]Nm ([a-z_]+).*" "\\1.3" link "${line}")
    if(NOT link STREQUAL name)
      file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/man/${link} CONTENT ".so man3/${name}\n")
      install(FILES ${CMAKE_CURRENT_BINARY_DIR}/man/${link} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
    endif()
  endforeach()
endforeach()

# The wheel of python/ has the library inside, under the name that its loader opens.
if(SKBUILD)
  target_link_options(zoff PRIVATE -s)
  install(FILES $<TARGET_FILE:zoff> RENAME $<TARGET_SONAME_FILE_NAME:zoff> DESTINATION zoff/lib COMPONENT python)
  install(DIRECTORY $ENV{ZOFF_WHEEL_LICENSES} DESTINATION zoff/licenses COMPONENT python)
endif()
