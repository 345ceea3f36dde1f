#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_isa.py: checks the compiled machine code, not the compiler flags alone. Disassembles the kernel objects and reads the
compile commands.

check_isa.py BUILD_DIR OBJECT...

- every kernel of kernels_avx512 uses 512-bit registers, every kernel of kernels_avx2 uses 256-bit and no 512-bit ones, the
  scalar table uses neither;
- each conversion of types has a loop of stores past the caches;
- each square root and division of a vector kernel is the exact instruction, none is an approximation;
- no compile command has -march=native or any other flag for the build machine. Only the kernel files and the benchmarks' own
  loops have ISA flags.
"""
import json
import os
import re
import subprocess
import sys

KERNELS = ("kernel_update_apart", "kernel_accumulate", "cast_any", "kernel_square_sum", "product_tile")
PARTS = ("avx2_pairs", "avx512_pairs")  # steps only: other kernels are in the object of the instruction set

# Loops of steps, update_<TYPES>_<RULE>_<FORMAT>. Each of 7 rules with states, of which rules with decay are parts, but for Adam,
# has a plain one for each format of moments, and one for split masters. Two rules have those for bf16 copies, fp16 copies and
# bf16 in place. A function has all of those without states. Pairs have those for split masters and moments that are not fp32.
# Muon's momentum has two plain ones.
PAIRED = 7 + 2 * 2
LOOPS = 7 * 2 + 3 * 2 + 7 + PAIRED + 2 * (4 + 4 + 2) + 1 + 2
CASTS = 6  # from each of three types to the others
failures = []


def check(condition, words):
    if not condition:
        failures.append(words)


def functions(path):
    """Return the disassembly of an object, a text for each function."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    parts = re.split(r"^[0-9a-f]+ <([^>]+)>:$", listing, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def check_object(path):
    isa = re.search(r"kernels_(\w+)\.c", os.path.basename(path)).group(1)
    found = functions(path)
    loops = sorted({name.split(".")[0] for name in found if re.match(r"update_(\w+_)?[A-Z]", name)})
    expected = PAIRED if isa in PARTS else LOOPS - (PAIRED if f"{isa}_pairs" in PARTS else 0)
    check(len(loops) == expected, f"{path}: {len(loops)} loops of steps, not {expected}")
    for kernel in (*(() if isa in PARTS else KERNELS), *loops):
        # Parts that the compiler split off belong to their kernel.
        code = "".join(text for name, text in found.items() if name == kernel or name.startswith(kernel + "."))
        check(code, f"{path}: no function {kernel}")
        wide, middle = len(re.findall("%zmm", code)), len(re.findall("%ymm", code))
        print(f"{isa:8} {kernel:21} {len(code.splitlines()):5} instructions, zmm {wide:5}, ymm {middle:5}")
        if isa.startswith("avx512"):
            check(wide, f"{path}: {kernel} has no 512-bit instruction")
        elif isa.startswith("avx2"):
            check(middle, f"{path}: {kernel} has no 256-bit instruction")
            check(not wide, f"{path}: {kernel} has 512-bit instructions")
        else:
            check(not wide and not middle, f"{path}: {kernel} has instructions that some CPUs of this kind lack")
        if isa != "scalar" and kernel in loops:
            check(re.search(r"vfmadd\w+ps", code), f"{path}: {kernel} has no fused multiply-add")
    if isa != "scalar" and isa not in PARTS:
        count = len(re.findall("vmovnt", found["cast_any"]))
        check(count >= CASTS + 1, f"{path}: cast_any has {count} stores past the caches, not one for each of {CASTS} conversions and a copy")
    if isa != "scalar":
        everything = "".join(found.values())
        check(re.search(r"vsqrtps", everything) and re.search(r"vdivps", everything), f"{path}: no vector root or division")
        check(not re.search(r"rsqrt|vrcp", everything), f"{path}: an approximate root or reciprocal")


def check_commands(build):
    path = os.path.join(build, "compile_commands.json")
    with open(path, encoding="utf-8") as file:
        commands = json.load(file)
    check(commands, f"{path} is empty")
    for entry in commands:
        words = entry.get("command", " ".join(entry.get("arguments", [])))
        source = entry["file"]
        # The compared program of bench/step is compiled as its author compiles it.
        is_rival = source.endswith("/bench/step_own_loop.c")
        for flag in ("-march=", "-mtune=native", "-mcpu=native", "-ffast-math", "-Ofast"):
            check(flag not in words or (is_rival and flag == "-Ofast"), f"{source}: compiled with {flag}")
        if re.search(r"\s-m(avx|fma|f16c|sse4)", words):
            own = "/src/cpu_adam/isa/" in source or "/bench/" in source
            check(own, f"{source}: compiled with ISA flags, which belong to src/cpu_adam/isa/ only")
    print(f"{len(commands)} compile commands")


def main():
    build, objects = sys.argv[1], sys.argv[2:]
    for path in objects:
        if "kernels_" in os.path.basename(path):
            check_object(path)
    check(any("kernels_avx512" in path for path in objects), "the AVX-512 object was not among the arguments")
    check_commands(build)
    for words in failures:
        print("FAILED:", words)
    sys.exit(1 if failures else 0)


main()
