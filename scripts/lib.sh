# SPDX-License-Identifier: Apache-2.0
# lib.sh: what scripts/demo and scripts/test share: where the repository is, how it is built. Sourced, not run:
# shellcheck shell=bash
#     . "$(dirname "$(readlink -f "$0")")/lib.sh"
# Sets `root` to the top of the repository, whatever the current folder and through whatever link the script was called.

set -o pipefail # a build that fails behind a filter is still a failure
root=$(cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
# Some of what the tools print is searched, so it is in English.
export LC_ALL=C.UTF-8

say() { # words...
    printf '== %s\n' "$*"
}

die() { # words...
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# zoff_install_deps demo|test: what is missing, by apt. Silent when nothing is.
zoff_install_deps() {
    "$root/scripts/install-deps" "${1:-test}"
}

# ccache, where it is installed, compiles what has not changed, in this clone or in another: paths are relative to the clone.
# Precompiled headers need the sloppiness.
zoff_use_ccache() {
    command -v ccache >/dev/null || return 0
    export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER:-ccache} CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER:-ccache}
    export CMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CUDA_COMPILER_LAUNCHER:-ccache}
    export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
    export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:+$CCACHE_SLOPPINESS,}pch_defines,time_macros
}

# zoff_configure PRESET [cmake options]: quiet when all is well.
zoff_configure() {
    zoff_use_ccache
    local preset=$1 folder=$root/build-$1 log fresh=()
    shift
    [ "$preset" != release ] || folder=$root/build
    # A build folder that was copied or moved with its tree still names the old place: CMake would refuse it.
    if [ -f "$folder/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$folder/CMakeCache.txt"; then
        fresh=(--fresh)
    fi
    mkdir -p "$folder"
    log=$folder/configure.log
    if ! (cd "$root" && cmake --preset "$preset" "${fresh[@]}" "$@") >"$log" 2>&1; then
        cat "$log" >&2
        die "configuring $folder failed"
    fi
}

# zoff_make PRESET [targets]: build with progress: all lines on a terminal, a line for each tenth elsewhere.
zoff_make() {
    local preset=$1 folder=$root/build-$1
    shift
    [ "$preset" != release ] || folder=$root/build
    local command=(cmake --build "$folder" --parallel "$(nproc)")
    [ $# = 0 ] || command+=(--target "$@")
    if [ -t 1 ]; then
        "${command[@]}" || die "building $folder failed"
    else
        # Ninja's "[37/120] Building ..." lines are thinned; whatever else it says (compiler messages) passes.
        NINJA_STATUS='[%f/%t] ' "${command[@]}" 2>&1 | awk '
            match($0, /^\[[0-9]+\/[0-9]+\] /) {
                split(substr($0, 2, RLENGTH - 3), count, "/")
                tenth = int(10 * count[1] / count[2])
                if (tenth != last) { printf "   built %d of %d\n", count[1], count[2]; fflush() }
                last = tenth
                next
            }
            /^ninja: no work to do/ { next }
            { print; fflush() }' || die "building $folder failed"
    fi
}

# zoff_build [targets]: builds the release preset in build/, which demo and test share. Both configure the tests where their
# packages are installed, so that neither undoes the work of the other. Without targets everything is built.
zoff_build() {
    say "building $root/build"
    zoff_configure release -DZOFF_TESTS=AUTO
    zoff_make release "$@"
}
