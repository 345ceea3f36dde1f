# SPDX-License-Identifier: Apache-2.0
# portfile.cmake: the port for vcpkg: ports/zoff.
set(home https://zoff.invalid) # scripts/release --url

vcpkg_download_distfile(ARCHIVE
    URLS "${home}/zoff-${VERSION}.tar.xz"
    FILENAME "zoff-${VERSION}.tar.xz"
    SHA512 00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
)
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${ARCHIVE}")

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
    FEATURES
        cuda   ZOFF_CUDA
        libzip ZOFF_LIBZIP
        mpi    ZOFF_MPI
        nccl   ZOFF_NCCL
)
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        ${FEATURE_OPTIONS}
        -DZOFF_TESTS=OFF
        -DZOFF_UCX=OFF # vcpkg has no UCX
)
if("cuda" IN_LIST FEATURES)
    vcpkg_cmake_build(TARGET cuda) # a plain build leaves it out
endif()
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/zoff)
vcpkg_fixup_pkgconfig()
vcpkg_copy_tools(TOOL_NAMES zoff AUTO_CLEAN)

# A port has one kind of library.
file(REMOVE
    "${CURRENT_PACKAGES_DIR}/lib/libzoff.a"
    "${CURRENT_PACKAGES_DIR}/lib/pkgconfig/zoff-static.pc"
    "${CURRENT_PACKAGES_DIR}/debug/lib/libzoff.a"
    "${CURRENT_PACKAGES_DIR}/debug/lib/pkgconfig/zoff-static.pc"
)
file(GLOB static "${CURRENT_PACKAGES_DIR}/share/zoff/zoffStaticTargets*.cmake")
file(REMOVE ${static})
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
