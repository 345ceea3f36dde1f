#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kernels_bits.py: runs kernels_bits, under an emulator if necessary, and compares its output with the reference, byte for byte.

kernels_bits.py write FILE EACH -- PROGRAM                        the reference: the scalar table
kernels_bits.py compare REFERENCE ISA[:BITS] FILE EACH -- [EMULATOR...] PROGRAM
kernels_bits.py chosen ISA -- [EMULATOR...] PROGRAM               the instruction set that a process chooses by itself

EACH goes to the program, which runs every EACH-th combination of types on the large array: that of the reference.
Removes a file that is equal. Keeps a file that differs, and names the first records that differ. Exits with 77 and a reason if
the program, the emulator, or the instruction set is missing.
"""
import os
import re
import subprocess
import sys

SKIP = 77
SHOWN = 5


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIP)


def fail(words):
    print("FAILED:", words)
    sys.exit(1)


def run(command):
    """Return the standard output of the program; skip if the program skips."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode == SKIP:
        sys.exit(SKIP)
    if done.returncode:
        fail(f"exit code {done.returncode} of {' '.join(command)}")
    return done.stdout


def records(data):
    """(label, width of an element, bytes) of each record."""
    at = 0
    while at < len(data):
        end = data.index(b"\n", at)
        label = data[at:end].decode()
        match = re.search(r", (\d+) follow, width (\d+)$", label)
        begin, size = end + 1, int(match.group(1))
        yield label[:match.start()], int(match.group(2)), data[begin:begin + size]
        at = begin + size + 1


def explain(expected, actual):
    shown = 0
    for (name, width, left), (other, _, right) in zip(records(expected), records(actual)):
        if name != other:
            fail(f"the record '{other}' stands where '{name}' should: not the same test program")
        if left == right:
            continue
        shown += 1
        if shown <= SHOWN:
            i = next(i for i in range(0, len(left), width) if left[i:i + width] != right[i:i + width])
            print(f"{name}: element {i // width}: expected 0x{left[i:i + width][::-1].hex()}, got 0x{right[i:i + width][::-1].hex()}")
    fail(f"{shown} records differ, and the files have {len(expected)} and {len(actual)} bytes")


def compare(reference, isa, path, each, command):
    if not os.path.exists(reference):
        fail(f"no reference {reference}")
    name, _, bits = isa.partition(":")
    run(command + [name, path, each] + ([bits] if bits else []))
    with open(reference, "rb") as first, open(path, "rb") as second:
        expected, actual = first.read(), second.read()
    if expected != actual:
        explain(expected, actual)
    os.remove(path)
    print(f"{len(actual)} bytes of {sum(1 for _ in records(actual))} records are those of the reference")


def main():
    at = sys.argv.index("--")
    mode, *words = sys.argv[1:at]
    command = sys.argv[at + 1:]
    for part in (command[-1], command[0]):
        if part.endswith("-NOTFOUND"):
            skip(f"{part[:-len('-NOTFOUND')]} is not installed")
    if not os.path.exists(command[-1]):
        fail(f"{command[-1]} was not built")
    if mode == "write":
        run(command + ["scalar", *words])
    elif mode == "compare":
        compare(*words, command)
    elif mode == "chosen":
        found = run(command).strip()
        if found != words[0]:
            fail(f"chose {found}, not {words[0]}")
    else:
        fail(f"no mode {mode}")


main()
