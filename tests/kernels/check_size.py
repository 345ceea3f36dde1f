#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_size.py: holds the text of the library and of each table of kernels below a limit. Loops that few programs run would take most
of the time of a build.

check_size.py LIBRARY OBJECT...     objects other than kernels_ISA.c.o and kernels_ISA_pairs.c.o are left out
"""
import os
import re
import subprocess
import sys

LIBRARY_MOST, TABLE_MOST = 1_700_000, 200_000  # bytes


def text_of(path):
    listing = subprocess.run(["size", path], check=True, capture_output=True, text=True).stdout
    return int(listing.splitlines()[1].split()[0])


def tables_of(objects):
    tables = {}
    for path in objects:
        found = re.fullmatch(r"kernels_(\w+)\.c\.o", os.path.basename(path))
        if found:
            tables[found.group(1)] = text_of(path)
    return tables


def main():
    library, *objects = sys.argv[1:]
    tables = tables_of(objects)
    sizes = [("the library", text_of(library), LIBRARY_MOST), *((f"the table {isa}", size, TABLE_MOST) for isa, size in tables.items())]
    for name, size, most in sizes:
        print(f"{name:20} {size:8} bytes of text, at most {most}")
    too_large = [name for name, size, most in sizes if size > most]
    if "scalar" not in tables:
        sys.exit("FAILED: no object of the table scalar")
    if too_large:
        sys.exit("FAILED: too large: " + ", ".join(too_large))


if __name__ == "__main__":
    main()
