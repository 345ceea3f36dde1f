# THE dependency table. A room sees the doors of the rooms it NEEDS and no others; tests/structure/check_rooms.py holds
# the rest of the picture in docs/ARCHITECTURE.md (private headers, intrinsics, threads, getenv).
function(zoff_room room)
  cmake_parse_arguments(ARG "" "" "NEEDS;LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/${room}/*.c)
  add_library(zoff_${room} OBJECT ${sources})
  target_include_directories(zoff_${room} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/src/${room} ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_compile_options(zoff_${room} PRIVATE ${ZOFF_C_WARNINGS})
  target_compile_definitions(zoff_${room} PRIVATE ZOFF_BUILD ZOFF_ROOM="${room}")
  foreach(need IN LISTS ARG_NEEDS)
    target_link_libraries(zoff_${room} PUBLIC zoff_${need})
  endforeach()
  target_link_libraries(zoff_${room} PRIVATE ${ARG_LINKS})
  set_property(GLOBAL APPEND PROPERTY ZOFF_ROOMS ${room})
endfunction()

# No OpenMP: base/openmp.c finds the runtime of the program, where it has one.
zoff_room(base     LINKS PkgConfig::numa Threads::Threads)
zoff_room(cpu_adam NEEDS base)
zoff_room(aio      NEEDS base LINKS PkgConfig::liburing PkgConfig::jansson Threads::Threads)
zoff_room(accel    NEEDS cpu_adam base LINKS Threads::Threads)
zoff_room(comm     NEEDS base LINKS Threads::Threads)
zoff_room(config   NEEDS base LINKS PkgConfig::jansson)
zoff_room(zero     NEEDS comm base)
zoff_room(model    NEEDS config zero cpu_adam base)
zoff_room(digest   NEEDS base LINKS PkgConfig::libxxhash)
zoff_room(offload  NEEDS digest aio base)
if(ZOFF_HAVE_XXH_DISPATCH)
  target_compile_definitions(zoff_digest PRIVATE ZOFF_HAVE_XXH_DISPATCH)
endif()
zoff_room(lending  NEEDS model zero offload comm base)
zoff_room(transfer NEEDS lending model config zero offload cpu_adam accel comm base)
zoff_room(agreement NEEDS transfer model zero offload cpu_adam comm base)
zoff_room(archive  NEEDS digest cpu_adam aio base LINKS PkgConfig::jansson)
zoff_room(features NEEDS aio comm accel cpu_adam base)
zoff_room(engine   NEEDS agreement transfer lending model config zero offload cpu_adam accel comm base LINKS Threads::Threads)
zoff_room(checkpoint NEEDS engine archive digest agreement transfer lending model config zero offload cpu_adam accel comm aio base
          LINKS Threads::Threads)

include(isa)      # the kernel tables of cpu_adam, one per instruction set
include(library)  # libzoff.so and libzoff.a out of the rooms, and their installation
