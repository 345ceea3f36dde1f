#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_symbols.py: checks that libzoff.so exports exactly the functions of the headers, and a plug-in exactly one
function. The library must not call functions that end the process or print. Its objects must have no mutable state
except the entries of STATE."""
import argparse
import os
import re
import subprocess
import sys

# The library must not call or use any of these.
FORBIDDEN = {"exit", "_exit", "_Exit", "quick_exit", "abort", "__assert_fail", "raise", "printf", "__printf_chk", "vprintf",
             "__vprintf_chk", "puts", "putchar", "perror", "stdout", "system", "popen"}
# Only the log may use stderr and the functions that print to it.
STDERR_OBJECT = "log.c.o"
# The mutable objects that live as long as the process: (object file, name), and why each is allowed.
STATE = {
    ("log.c.o", "sink"): "where log lines go",
    ("dispatch.c.o", "chosen"): "the table of kernels, chosen once per process",
    ("dispatch.c.o", "once"): "guards that choice",
    ("dither.c.o", "table"): "the random bits of a block, computed once and then constant",
    ("fork.c.o", "forks"): "descriptors to close in a child, and number of forks since the first process",
    ("workers.c.o", "owners"): "the thread-specific key that frees a thread's team when the thread ends",
    ("weights.c.o", "handler"): "the handler of SIGSEGV of zoff.check_use: a process has one",
    ("team.c.o", "placement"): "the NUMA nodes on which the team's threads run, decided once; who watches their shares",
    ("engines.c.o", "file"): "the file of ZOFF_TRACE, which all engines of the process share",
    ("metrics.c.o", "engines"): "which engines of the process write files of ZOFF_METRICS, so that each has its own",
    ("engines.c.o", "zoff_trace_flag"): "whether something is traced now",
}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def promised(include):
    """The functions that the public headers declare with ZOFF_API."""
    names = set()
    for header in sorted(os.listdir(os.path.join(include, "zoff"))):
        with open(os.path.join(include, "zoff", header), encoding="utf-8") as f:
            text = re.sub(r"/\*.*?\*/|//[^\n]*|^[ \t]*#[^\n]*", "", f.read(), flags=re.S | re.M)
        names.update(re.findall(r"\bZOFF_API\b[^;(]*?\b(\w+)\s*\(", text))
    return names


def exported(shared):
    """{name: type} of the symbols that libzoff.so exports."""
    lines = output("nm", "--dynamic", "--defined-only", shared).splitlines()
    found = {line.split()[-1].split("@")[0]: line.split()[-2] for line in lines}
    return {name: kind for name, kind in found.items() if kind != "A"}  # A: the version nodes themselves


def check_exports(shared, include):
    want, have = promised(include), exported(shared)
    if not want:
        yield "no ZOFF_API function found in the headers"
    for name in sorted(want - set(have)):
        yield f"{name} is declared in include/zoff and not exported: not defined, or defined without its header"
    for name in sorted(set(have) - want):
        yield f"{name} is exported and not declared with ZOFF_API in include/zoff: hidden visibility is lost"
    for name in sorted(want & set(have)):
        if have[name] != "T":
            yield f"{name} is exported as '{have[name]}', not as a function"


def check_map(shared, include):
    """Every symbol belongs to a node of src/libzoff.map."""
    want = promised(include)
    versioned = {}
    for line in output("readelf", "--dyn-syms", "--wide", shared).splitlines():
        match = re.search(r"\b(zoff_\w+)@@?(ZOFF_[0-9.]+)$", line.strip())
        if match:
            versioned[match.group(1)] = match.group(2)
    for name in sorted(want - set(versioned)):
        yield f"{name} has no version: add it to src/libzoff.map"


def check_plugin(plugin):
    """A plug-in exports one function and imports nothing from zoff, so that it works with any version of the same ABI."""
    have = sorted(exported(plugin))
    if have != ["zoff_plugin_init"]:
        yield f"{plugin} exports {', '.join(have) or 'nothing'}; a plug-in exports zoff_plugin_init and nothing else"
    for line in output("nm", "--dynamic", "--undefined-only", plugin).splitlines():
        name = line.split()[-1].split("@")[0]
        if name.startswith("zoff_") or name in FORBIDDEN:
            yield f"{plugin} refers to {name}: plug-ins link nothing of zoff, and neither end the program nor print"


def check_calls(shared):
    for line in output("nm", "--dynamic", "--undefined-only", shared).splitlines():
        name = line.split()[-1].split("@")[0]
        if name in FORBIDDEN:
            yield f"libzoff.so refers to {name}: the library returns a status and prints only through its log"


def check_stderr(static):
    for line in output("nm", "--undefined-only", "--print-file-name", static).splitlines():
        where, name = line.rsplit(":", 1)[0], line.split()[-1]
        member = where.split(":")[-1]
        if name in ("stderr", "fprintf", "vfprintf", "__fprintf_chk", "__vfprintf_chk") and member != STDERR_OBJECT:
            yield f"{member} refers to {name}: lines are made by src/base/log.c"
        elif name in FORBIDDEN:
            yield f"{member} refers to {name}: the library returns a status and prints only through its log"


def check_state(static, allowed):
    """Objects in writable sections. Thread-local objects are allowed; .data.rel.ro is constant after relocation."""
    member = "?"
    for line in output("objdump", "--syms", static).splitlines():
        header = re.match(r"(\S+):\s+file format", line)
        if header:
            member = header.group(1)
        # value, flags (O: an object), section, size, name
        row = re.match(r"[0-9a-f]+ [ a-zA-Z!]{6}O (\.bss\S*|\.data\S*|\*COM\*)\s+[0-9a-f]+\s+(?:\.hidden )?(\S+)$", line)
        if not row or row.group(1).startswith(".data.rel.ro"):
            continue
        name = re.sub(r"\.\d+$", "", row.group(2))
        if (member, name) not in allowed:
            yield f"{member}: {name} is global mutable state ({row.group(1)}): keep it in a handle, or make it const"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", required=True)
    parser.add_argument("--static", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--plugin", action="append", default=[])
    a = parser.parse_args()
    complaints = [c for plugin in a.plugin for c in check_plugin(plugin)]
    complaints += [*check_exports(a.shared, a.include), *check_map(a.shared, a.include), *check_calls(a.shared), *check_stderr(a.static), *check_state(a.static, STATE)]
    print("\n".join(complaints) or f"{len(promised(a.include))} functions exported, none too many; no exit, no print, no state")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
