# What zoff takes from the distribution. A missing package stops the configuration with the package to install.
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(PkgConfig REQUIRED)
foreach(module IN ITEMS "liburing;liburing-dev" "numa;libnuma-dev" "jansson;libjansson-dev" "libxxhash;libxxhash-dev")
  list(GET module 0 pc)
  list(GET module 1 package)
  pkg_check_modules(${pc} QUIET IMPORTED_TARGET ${pc})
  if(NOT ${pc}_FOUND)
    message(FATAL_ERROR "zoff needs ${pc}, which pkg-config does not find. On Debian or Ubuntu: apt-get install ${package} "
                        "(or run scripts/install-deps).")
  endif()
endforeach()
find_package(Threads REQUIRED)

# xxHash chooses its vectors at run time where the distribution's library was built with that choice (x86 only).
include(CheckSymbolExists)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::libxxhash)
check_symbol_exists(XXH3_64bits_dispatch "xxhash.h;xxh_x86dispatch.h" ZOFF_HAVE_XXH_DISPATCH)
unset(CMAKE_REQUIRED_LIBRARIES)

# Optional: the communicator "mpi" is a plug-in, and only that is not built where there is no MPI.
option(ZOFF_MPI "Build the plug-in for MPI where one is found" ON)
set(ZOFF_HAVE_MPI FALSE)
if(ZOFF_MPI)
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND AND NOT MPI_C_VERSION VERSION_LESS 3.0)
    set(ZOFF_HAVE_MPI TRUE)
  endif()
endif()
