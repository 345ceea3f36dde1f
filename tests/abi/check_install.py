#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_install.py: installs zoff into a scratch prefix, moves the prefix, and builds a program outside the tree against
it. The program uses CMake and pkg-config, the shared and the static library. Without --build the script configures
and builds the library itself, without tests, and so without a C++ compiler."""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile


def run(*command, env=None, fails=False, cwd=None):
    """Return the output of a command. If the command ends otherwise than expected, end the test and print the output."""
    result = subprocess.run(command, env={**os.environ, **(env or {})}, cwd=cwd, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False)
    if (result.returncode != 0) != fails:
        sys.exit(f"{' '.join(command)}\n{result.stdout}\nexit status {result.returncode}")
    return result.stdout


def expect(condition, words):
    if not condition:
        sys.exit(words)


def dynamic(path, tag):
    """Values of a tag of the dynamic section: SONAME, NEEDED, RUNPATH."""
    return re.findall(rf"\({tag}\).*\[(.*)\]", run("readelf", "--dynamic", "--wide", path))


def check_files(a, prefix, libdir):
    headers = sorted(os.path.basename(p) for p in glob.glob(os.path.join(a.source, "include/zoff/*.h")) + ["zoff.hpp"])
    expect(sorted(os.listdir(os.path.join(prefix, "include/zoff"))) == headers, "not the headers of include/zoff")
    real = f"libzoff.so.{a.version}"
    soname = f"libzoff.so.{a.version.split('.')[0]}"
    expect(os.path.isfile(os.path.join(libdir, real)) and not os.path.islink(os.path.join(libdir, real)), f"no {real}")
    for link in (soname, "libzoff.so"):
        expect(os.path.realpath(os.path.join(libdir, link)) == os.path.realpath(os.path.join(libdir, real)), f"{link} is not {real}")
    expect(dynamic(os.path.join(libdir, real), "SONAME") == [soname], "wrong SONAME")
    for tag in ("RPATH", "RUNPATH"):
        expect(not dynamic(os.path.join(libdir, real), tag), f"{real} looks for libraries in a folder of the machine it was built on")
    for path in ("libzoff.a", "pkgconfig/zoff.pc", "pkgconfig/zoff-static.pc", "cmake/zoff/zoffConfig.cmake", "cmake/zoff/zoffConfigVersion.cmake"):
        expect(os.path.isfile(os.path.join(libdir, path)), f"no {path}")
    # The description of the API, which the command has inside.
    with open(os.path.join(prefix, "share/zoff/api.json"), encoding="utf-8") as f:
        expect(f.read() == run(os.path.join(prefix, "bin/zoff"), "api", "--json"), "zoff api --json prints another file than share/zoff/api.json")
    # Its lines declare what the headers declare.
    with open("lines.c", "w", encoding="utf-8") as f:
        f.write("#include <zoff/zoff.h>\n" + run(os.path.join(prefix, "bin/zoff"), "api"))
    run(a.cc, "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-I", os.path.join(prefix, "include"), "lines.c")
    # Plug-ins are installed in a folder beside libzoff.
    for plugin in glob.glob(os.path.join(a.build, "zoff/libzoff_*.so")):
        expect(os.path.isfile(os.path.join(libdir, "zoff", os.path.basename(plugin))), f"no {os.path.basename(plugin)}")
    # No installed text file may name a folder of the build, or the prefix before the move.
    for path in glob.glob(os.path.join(libdir, "**/*.cmake"), recursive=True) + [os.path.join(libdir, "pkgconfig/zoff.pc")]:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for folder in (a.source, a.build, os.path.join(os.path.dirname(prefix), "installed")):
            expect(folder + "/" not in text and folder + '"' not in text, f"{path} names {folder}")


def check_program(program, kind, version, libdir):
    needed = dynamic(program, "NEEDED") if "dynamically" in kind else []
    expect((kind == "dynamically, shared") == any(n.startswith("libzoff") for n in needed), f"{program}: {kind}, but needs {needed}")
    words = run(program, env={"LD_LIBRARY_PATH": libdir if kind == "dynamically, shared" else ""})
    expect(words == f"zoff {version}: 0.875000\n", f"{program} said: {words}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("cc", "cmake", "source", "consumer", "version", "generator", "libdir"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--build")
    a = parser.parse_args()
    major, minor, patch = (int(n) for n in a.version.split("."))
    number = major * 10000 + minor * 100 + patch
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        if not a.build:
            a.build = os.path.join(scratch, "build")
            run(a.cmake, "-S", a.source, "-B", a.build, "-G", a.generator, "-DCMAKE_C_COMPILER=" + a.cc, "-DCMAKE_CXX_COMPILER=no-such-compiler",
                "-DZOFF_TESTS=OFF", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_INSTALL_LIBDIR=" + a.libdir)
            run(a.cmake, "--build", a.build, "--parallel", "2")
        run(a.cmake, "--install", a.build, "--prefix", os.path.join(scratch, "installed"))
        prefix = os.path.join(scratch, "moved")
        os.rename("installed", prefix)
        libdir = os.path.join(prefix, a.libdir)
        check_files(a, prefix, libdir)

        outside = os.path.join(scratch, "outside")
        os.mkdir(outside)
        shutil.copy(os.path.join(a.consumer, "main.c"), outside)
        shutil.copy(os.path.join(a.consumer, "project.cmake"), os.path.join(outside, "CMakeLists.txt"))

        def configure(kind, **how):
            return run(a.cmake, "-S", outside, "-B", "by-cmake-" + kind, "-G", a.generator, "-DCMAKE_C_COMPILER=" + a.cc, "-DKIND=" + kind,
                       "-DCMAKE_PREFIX_PATH=" + prefix, **how)

        # A machine may lack the libraries that zoff uses. The shared library must work there; asking for the static one must
        # give an error.
        alone = {"PKG_CONFIG_LIBDIR": os.path.join(libdir, "pkgconfig"), "PKG_CONFIG_PATH": ""}
        words = " ".join(configure("static", env=alone, fails=True).split())
        expect("zoff::static needs what is not found here: liburing, numa, jansson, libxxhash" in words and "apt-get install" in words, words)
        shutil.rmtree("by-cmake-static")
        configure("shared", env=alone)
        configure("static")
        for kind in ("shared", "static"):
            run(a.cmake, "--build", "by-cmake-" + kind)
            check_program(f"{scratch}/by-cmake-{kind}/consumer", "dynamically, " + kind, number, libdir)

        def flags(*options):
            return run("pkg-config", *options, "zoff", env=alone).split()

        expect(flags("--modversion") == [a.version], "zoff.pc has another version")
        expect(os.path.isfile(os.path.join(flags("--variable=bindings")[0], "fortran/zoff.f90")), "the bindings of zoff.pc are not there")
        shared = flags("--cflags", "--libs")
        expect(shared == [f"-I{prefix}/include", f"-L{libdir}", "-lzoff"] or
               [os.path.realpath(f[2:]) for f in shared[:2]] == [f"{prefix}/include", libdir] and shared[2:] == ["-lzoff"], f"pkg-config: {shared}")
        run(a.cc, "-std=c11", f"{outside}/main.c", "-o", "by-pkg-config-shared", *shared, "-lm")
        check_program(f"{scratch}/by-pkg-config-shared", "dynamically, shared", number, libdir)
        # The dynamic linker does not know the folder and LD_LIBRARY_PATH is empty: the program must find the library by its
        # rpath.
        run(a.cc, "-std=c11", f"{outside}/main.c", "-o", "by-rpath", *shared, *flags("--variable=rpath"), "-lm")
        expect(run(f"{scratch}/by-rpath", env={"LD_LIBRARY_PATH": ""}) == f"zoff {number}: 0.875000\n", "rpath of zoff.pc")
        # libzoff.a lies beside libzoff.so, and a plain -lzoff would choose the shared one.
        beside = run("pkg-config", "--cflags", "--libs", "zoff-static", env=alone).split()
        run(a.cc, "-std=c11", f"{outside}/main.c", "-o", "by-zoff-static", *beside)
        check_program(f"{scratch}/by-zoff-static", "dynamically, static", number, libdir)
        static = flags("--static", "--cflags", "--libs")
        run(a.cc, "-std=c11", "-static", f"{outside}/main.c", "-o", "by-pkg-config-static", *static)
        check_program(f"{scratch}/by-pkg-config-static", "statically", number, libdir)
        with open("plugin.c", "w", encoding="utf-8") as f:
            f.write('#include <stdio.h>\n#include <zoff/zoff.h>\nint main(void)\n{\n    zoff_accel *accel;\n'
                    '    return zoff_accel_open("cuda", 0, &accel) == ZOFF_ERR_UNSUPPORTED ? !puts(zoff_last_error()) : 1;\n}\n')
        run(a.cc, "-static", "plugin.c", "-o", "plugin", *static)
        expect(run(f"{scratch}/plugin") == 'the accelerator "cuda" is a plug-in, and a program that is linked with -static loads none: link it '
               "without -static\n", "another message of a static program")
        # Some distributions have no static libraries. The shared one works there.
        for path in glob.glob(os.path.join(libdir, "cmake/zoff/zoffStaticTargets*")) + [os.path.join(libdir, "libzoff.a")]:
            os.remove(path)
        shutil.rmtree("by-cmake-shared")
        configure("shared")
        shutil.rmtree("by-cmake-static")
        words = " ".join(configure("static", fails=True).split())
        expect("zoff was installed here without libzoff.a: link zoff::zoff, the shared library" in words, words)
    print("installed, moved, and linked six ways")
    return 0


if __name__ == "__main__":
    sys.exit(main())
