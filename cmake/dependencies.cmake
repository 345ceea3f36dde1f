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

# Optional: the accelerator "cuda" is a plug-in, too. ThreadSanitizer and a compiler for another machine leave it out.
option(ZOFF_CUDA "Build the plug-in for CUDA where a toolkit is found" ON)
set(ZOFF_HAVE_CUDA FALSE)
if(ZOFF_CUDA AND NOT CMAKE_CROSSCOMPILING AND NOT ZOFF_SANITIZE MATCHES thread)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE cuda_words ERROR_QUIET)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100) # the last one as PTX, too, for what comes after it
    if(cuda_words MATCHES "release ([0-9]+\\.[0-9]+)" AND CMAKE_MATCH_1 VERSION_LESS 12.8)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    if(ZOFF_SANITIZE) # what runs there runs over a runtime made of threads
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
  endif()
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 12 QUIET)
    set(ZOFF_HAVE_CUDA ${CUDAToolkit_FOUND})
  endif()
endif()

# Optional: so is the communicator "nccl", which needs the toolkit, too. Its communicators are split from others: since 2.18.
option(ZOFF_NCCL "Build the plug-in for NCCL where CUDA and NCCL are found" ON)
set(ZOFF_HAVE_NCCL FALSE)
if(ZOFF_NCCL AND ZOFF_HAVE_CUDA)
  find_package(NCCL 2.18 QUIET)
  set(ZOFF_HAVE_NCCL ${NCCL_FOUND})
endif()
