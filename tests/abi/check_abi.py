#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_abi.py: the types and functions of the public headers, compared with those recorded for the release.

The script compiles a library whose variables are pointers to the public functions, so that its debug information has every
public type. The command abidw writes the types down, and abidiff compares them with the record. A field that has moved, a
type that has changed and a missing function are differences; a new function is none.

Until the release that the record names is out, --record writes it anew for a struct that has grown; give the reason in
CHANGELOG.md. In a later version the record stays, and fields behind the recorded size of a struct and new enumerators are no
differences. Without abidiff the script exits with 77, which ctest counts as skipped."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

SKIPPED = 77
HEADERS = ("zoff/zoff.h", "zoff/plugin.h")


def functions(symbols):
    """The names that the linker script exports."""
    with open(symbols, encoding="utf-8") as file:
        return re.findall(r"^\s+(zoff_\w+);", file.read(), re.M)


def describe(args, folder):
    """Write the surface of the headers as abidw sees it; the path of the description."""
    source, library, out = "surface.c", "surface.so", os.path.join(folder, "surface.abi")
    with open(os.path.join(folder, source), "w", encoding="utf-8") as file:
        file.write("".join(f"#include <{header}>\n" for header in HEADERS))
        for name in functions(args.symbols):
            file.write(f"extern __typeof__({name}) *const surface_{name};\n__typeof__({name}) *const surface_{name} = 0;\n")
        file.write("extern zoff_plugin_init_fn surface_plugin_init;\nzoff_plugin_init_fn surface_plugin_init = 0;\n")
    subprocess.run([args.cc, "-std=c11", "-g", "-O0", "-fPIC", "-shared", f"-I{os.path.abspath(args.include)}",
                    source, "-o", library], check=True, cwd=folder)
    subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash", "--out-file",
                    out, library], check=True, cwd=folder)
    return out


def version(include):
    """The version that the headers have."""
    with open(os.path.join(include, "zoff", "status.h"), encoding="utf-8") as file:
        return tuple(map(int, re.findall(r"^#define ZOFF_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", file.read(), re.M)))


def forget_appended(made, record):
    """Remove from a description the fields and enumerators that a later version may have added to the record's. A suppression
    of abidiff would hide other changes of the same struct, too. A field within the recorded size lies in padding, which programs
    of the recorded version leave undefined, so it stays a difference."""
    known = {(tag, found.get("name")): found for tag in ("class-decl", "enum-decl") for found in ET.parse(record).iter(tag)}
    tree = ET.parse(made)
    for struct in tree.iter("class-decl"):
        before = known.get(("class-decl", struct.get("name")))
        fields = struct.findall("data-member")
        if before is None or not fields or fields[0].find("var-decl").get("name") != "struct_size":
            continue
        bits = int(before.get("size-in-bits"))
        appended = [field for field in fields if int(field.get("layout-offset-in-bits")) >= bits]
        if appended:
            struct.set("size-in-bits", str(bits))
        for field in appended:
            struct.remove(field)
    for enum in tree.iter("enum-decl"):
        before = known.get(("enum-decl", enum.get("name")))
        names = {one.get("name") for one in before} if before is not None else None
        for one in enum.findall("enumerator"):
            if names and one.get("name") not in names:
                enum.remove(one)
    tree.write(made)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--include", required=True)
    parser.add_argument("--symbols", required=True)
    parser.add_argument("--against", required=True)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    if not shutil.which("abidiff"):
        print("abidiff is missing: apt-get install abigail-tools")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        made = describe(args, folder)
        if args.record:
            shutil.copyfile(made, args.against)
            return 0
        if version(args.include) > tuple(map(int, re.findall(r"\d+", os.path.basename(args.against)))):
            forget_appended(made, args.against)
        found = subprocess.run(["abidiff", "--no-added-syms", "--harmless", "--no-architecture", args.against, made], capture_output=True, text=True)
        print(found.stdout + found.stderr or f"as recorded in {os.path.basename(args.against)}")
        return 1 if found.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
