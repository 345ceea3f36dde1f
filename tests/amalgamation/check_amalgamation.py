#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_amalgamation.py: checks zoff.h and zoff.c of scripts/amalgamate.

Always: two runs write the same bytes; zoff.c and zoff.h have no warning, in C and C++.
With --library and --bits zoff.c is compiled as the page says. The object shows the functions of src/libzoff.map alone, and has
vector instructions only in tables. Its kernels have the bits of the library. The programs of README and examples/mlp print with
it the same as with libzoff.so, and write the same files."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

# The page names more options, which zoff.c sets itself if they are missing.
FLAGS_OF_ZOFF = ["-O2"]
FLAGS = ["-O2", "-ffp-contract=off", "-fno-math-errno"]
LINKS = ["-luring", "-lnuma", "-ljansson", "-lxxhash", "-lpthread", "-lm", "-ldl"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
# Functions that may use registers of 32 and 64 bytes: those of a table.
WIDE = re.compile(r"(avx2|avx512)_|zoff_adam_kernels_avx(2|512)_pairs")
# Names that are drawn at random are the same in each run.
FIXED = """#include <string.h>
#include <sys/random.h>
ssize_t getrandom(void *to, size_t bytes, unsigned flags)
{
    static int next;
    (void)flags;
    memset(to, ++next, bytes);
    return (ssize_t)bytes;
}
"""
USER = '#include "zoff.h"\n#include "zoff.h"\n%sunsigned %s(void);\nunsigned %s(void)\n{\n    return zoff_version();\n}\n'


class Wrong(Exception):
    pass


def run(command, folder, **more):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, **more)
    if done.returncode:
        raise Wrong(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-4000:]}")
    return done.stdout


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(text)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def files_below(folder):
    """{path: bytes}. A save has a number from the clock, which its checksum covers."""
    paths = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    return {os.path.relpath(path, folder): re.sub(rb'"sequence": \d+|^  "checksum": ".*"', b"", read(path), flags=re.M) for path in paths}


def check_text(a, folder):
    again = os.path.join(folder, "again")
    for out in (folder, again):
        run([os.path.join(a.root, "scripts/amalgamate"), out], folder)
    for name in ("zoff.h", "zoff.c"):
        if read(os.path.join(folder, name)) != read(os.path.join(again, name)):
            raise Wrong(f"two runs of scripts/amalgamate write different {name}")
    shutil.rmtree(again)
    write(folder, "one.c", USER % ("", "one", "one"))
    write(folder, "two.c", USER % ("", "two", "two"))
    write(folder, "three.cc", USER % ('extern "C" ', "three", "three"))
    run([a.cc, *FLAGS_OF_ZOFF, *WARNINGS, "-fsyntax-only", "zoff.c"], folder)
    bare = subprocess.run([a.cc, "-nostdinc", "-I.", "-fsyntax-only", "zoff.c"], cwd=folder, capture_output=True, text=True)
    if "apt install liburing-dev libnuma-dev libjansson-dev libxxhash-dev" not in bare.stderr:
        raise Wrong(f"without its headers zoff.c does not name their packages: {bare.stderr}")
    system = [flag for path in a.mpi.split(";") if path for flag in ("-isystem", path)]
    for with_mpi in ([], ["-DZOFF_WITH_MPI", *system]) if system else ([],):
        run([a.cc, "-std=c11", "-Wpedantic", *WARNINGS, *with_mpi, "-fsyntax-only", "one.c"], folder)
        run([a.cxx, "-std=c++17", "-Wpedantic", "-Wold-style-cast", *WARNINGS, *with_mpi, "-fsyntax-only", "three.cc"], folder)


def check_symbols(a, folder):
    """Other objects and libraries see the public API of zoff.o and nothing else."""
    promised = set(re.findall(r"^ +(zoff_\w+);", read(os.path.join(a.root, "src/libzoff.map")).decode(), re.M))
    shown, hidden = set(), set()
    for line in run(["readelf", "--symbols", "--wide", "zoff.o"], folder).splitlines():
        row = re.match(r" +\d+: \S+ +\S+ +\w+ +(GLOBAL|WEAK) +(\w+) +(\w+) (\S+)$", line)
        if row and row[3] != "UND":
            (shown if row[2] == "DEFAULT" else hidden).add(row[4])
    if shown != promised:
        raise Wrong(f"zoff.o shows other functions than src/libzoff.map: {sorted(shown ^ promised)}")
    strange = sorted(name for name in hidden if not name.startswith("zoff_"))
    if strange:
        raise Wrong(f"hidden names of zoff.o that may clash with a program's: {strange}")


def check_wide(folder):
    """Outside of their tables no function uses vectors that the machine may lack."""
    if not os.uname().machine == "x86_64":
        return
    function, wide, seen = "", set(), 0
    for line in run(["objdump", "--disassemble", "--no-show-raw-insn", "zoff.o"], folder).splitlines():
        named = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        function = named[1] if named else function
        if re.search(r"%[yz]mm|\tv[a-z0-9]+ .*%xmm", line):
            seen += 1
            if not WIDE.match(function):
                wide.add(function)
    if wide or not seen:
        raise Wrong(f"functions with instructions of AVX outside of the tables: {sorted(wide)}" if wide else "zoff.o has no table with AVX")


def check_bits(a, folder):
    kernels = os.path.join(a.root, "tests/kernels")
    rooms = [f"-I{a.root}/src/{room}" for room in sorted(os.listdir(os.path.join(a.root, "src")))]
    run([a.cc, *FLAGS, "-std=c11", "-D_GNU_SOURCE", f"-I{a.root}/include", *rooms, f"{kernels}/kernels_bits.c", f"{kernels}/bits_data.c",
         "zoff.o", "-o", "bits", *LINKS], folder)
    run([a.bits, "scalar", "reference", "8"], folder)
    want, compared = read(os.path.join(folder, "reference")), []
    for table in ("scalar", "avx2", "avx512", "neon", "sve"):
        done = subprocess.run(["./bits", table, "bits.out", "8"], cwd=folder, capture_output=True, text=True)
        if done.returncode == 77:
            continue
        if done.returncode or read(os.path.join(folder, "bits.out")) != want:
            raise Wrong(f"the kernels of {table} in zoff.c have other bits than the scalar ones of the library\n{done.stdout}{done.stderr}")
        compared.append(table)
        os.remove(os.path.join(folder, "bits.out"))
    if len(compared) < 2:
        raise Wrong(f"only {compared} were compared")
    os.remove(os.path.join(folder, "reference"))
    return compared


def check_that_checks_fail(a, folder):
    """A name that is shown, and a table's function under another name, are found."""
    table = next(name for name in re.findall(r" t (\w+)$", run(["nm", "zoff.o"], folder), re.M) if re.match("avx2_update_plain|neon_update_plain", name))
    for change, check in (["--add-symbol=zoff_shown=.text:0,global,function", lambda at: check_symbols(a, at)],
                          [f"--redefine-sym={table}=shared_loop", check_wide]):
        at = tempfile.mkdtemp(dir=folder)
        run(["objcopy", change, "zoff.o", os.path.join(at, "zoff.o")], folder)
        try:
            check(at)
        except Wrong:
            continue
        if check != check_wide or os.uname().machine == "x86_64":
            raise Wrong(f"a check does not see {change}")


def sources(a, folder):
    """README's program, and the trainers of examples/mlp, for <zoff/zoff.h>."""
    page = read(os.path.join(a.root, "README.md")).decode()
    write(folder, "train.c", re.search(r"```c\n// train.c\n(.*?)```", page, re.S)[1])
    write(folder, "persist_train.json", re.search(r"```json\n// nvme.json\n(.*?)```", page, re.S)[1])
    example = os.path.join(a.root, "examples/mlp")
    for name in ("dram", "nvme", "persist"):
        shutil.copy(os.path.join(example, f"{name}.json"), folder)
    for patch in ("offload", "persist", "checkpoint", "hidden"):
        shutil.copy(os.path.join(example, "mlp.c"), os.path.join(folder, f"{patch}.c"))
        run(["patch", "--fuzz=0", f"{patch}.c", os.path.join(example, f"{patch}.diff")], folder)
    return ["train", "offload", "persist", "checkpoint", "hidden"]


RUNS = [("train", ""), ("train", "persist_train.json"), ("offload", "40 dram.json"), ("offload", "40 nvme.json"), ("hidden", "40 nvme.json"),
        ("persist", "20 persist.json"), ("persist", "40 persist.json"), ("checkpoint", "25 dram.json"), ("checkpoint", "40 nvme.json saves")]


def train(folder, program):
    """[printed text] and {file: bytes} of all runs; program(name): the command."""
    shutil.rmtree(os.path.join(folder, "run"), ignore_errors=True)
    at = os.path.join(folder, "run")
    os.makedirs(os.path.join(at, "states"))
    for name in os.listdir(folder):
        if name.endswith(".json"):
            shutil.copy(os.path.join(folder, name), at)
    text, left = [], {}
    for name, arguments in RUNS:
        if name == "persist" and arguments.startswith("20"):
            shutil.rmtree(os.path.join(at, "states"))
            os.makedirs(os.path.join(at, "states"))
        text.append(run([program(name), *arguments.split()], at))
        left.update({f"{len(text)}/{path}": content for path, content in files_below(at).items()})
    return text, left


def check_programs(a, folder):
    library = os.path.dirname(a.library)
    names = sources(a, folder)
    write(folder, "fixed.c", FIXED)
    for name in names:
        run([a.cc, *FLAGS, f"-I{a.root}/include", f"{name}.c", "fixed.c", "-o", f"{name}.shared", f"-L{library}", "-lzoff", f"-Wl,-rpath,{library}", "-lm"], folder)
        text = read(os.path.join(folder, f"{name}.c")).decode().replace("<zoff/zoff.h>", '"zoff.h"')
        write(folder, f"{name}.c", text)
        run([a.cc, *FLAGS, f"{name}.c", "fixed.c", "zoff.o", "-o", f"{name}.own", *LINKS], folder)
    want, want_files = train(folder, lambda name: f"../{name}.shared")
    had, had_files = train(folder, lambda name: f"../{name}.own")
    for (name, arguments), left, right in zip(RUNS, had, want):
        if left != right or not right:
            raise Wrong(f"{name} {arguments}: with zoff.c it prints\n{left}\nand with libzoff.so\n{right}")
    if set(had_files) != set(want_files):
        raise Wrong(f"other files: {sorted(set(had_files) ^ set(want_files))}")
    other = sorted(path for path in want_files if had_files[path] != want_files[path])
    if other:
        raise Wrong(f"files with other bytes: {other}")
    return len(want_files)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--cc", required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--mpi", default="")
    parser.add_argument("--library")
    parser.add_argument("--bits")
    parser.add_argument("--object", help="a zoff.o that was built before, to look at the rest again")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            check_text(a, folder)
            print("two runs write the same files, which have no warning in C and C++")
            if not a.library:
                return 0
            if a.object:
                shutil.copy(a.object, os.path.join(folder, "zoff.o"))
            else:
                run([a.cc, *FLAGS_OF_ZOFF, *WARNINGS, "-c", "zoff.c"], folder)
            write(folder, "main.c", '#include "zoff.h"\nint main(void)\n{\n    unsigned one(void), two(void), three(void);\n'
                                    "    return !(one() == two() && two() == three() && three() == zoff_version());\n}\n")
            run([a.cxx, "-c", "three.cc"], folder)
            run([a.cc, *FLAGS, "main.c", "one.c", "two.c", "three.o", "zoff.o", "-o", "main", *LINKS], folder)
            run(["./main"], folder)
            check_symbols(a, folder)
            check_wide(folder)
            check_that_checks_fail(a, folder)
            print(f"kernels with the bits of the library: {', '.join(check_bits(a, folder))}")
            print(f"{len(RUNS)} runs print the same, and their {check_programs(a, folder)} files are the same")
        except Wrong as wrong:
            print("FAILED:", wrong)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
