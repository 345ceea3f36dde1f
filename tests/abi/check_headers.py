#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_headers.py: checks that every public header compiles alone, included twice, as C11 and as C++17, without a
warning. zoff/mpi.h needs an MPI: --mpi gives its include folders, separated by semicolons. Without --mpi that header
is skipped."""
import argparse
import os
import subprocess
import sys

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-Wundef", "-fsyntax-only"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc", required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--mpi", default="")
    a = parser.parse_args()
    headers = sorted(os.listdir(os.path.join(a.include, "zoff")))
    if not a.mpi:
        headers.remove("mpi.h")
    system = [flag for folder in a.mpi.split(";") if folder for flag in ("-isystem", folder)]
    failed = 0 if headers else 1
    for header in headers:
        text = f"#include <zoff/{header}>\n#include <zoff/{header}>\n"  # twice, to test the include guard
        for command in ([a.cc, "-std=c11", "-Wstrict-prototypes", "-xc"], [a.cxx, "-std=c++17", "-Wold-style-cast", "-xc++"]):
            result = subprocess.run(command[:1] + command[1:-1] + WARNINGS + system + ["-I", a.include, command[-1], "-"], input=text,
                                    capture_output=True, text=True, check=False)
            if result.returncode:
                failed += 1
                print(f"zoff/{header} alone as {command[1][5:]}:\n{result.stderr}")
    print(f"{len(headers)} headers, each as C11 and as C++17: {failed} failures" + ("" if a.mpi else "; no MPI for zoff/mpi.h"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
