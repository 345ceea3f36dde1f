#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_page.py PAGE --root ROOT [--prefix PREFIX] [--section TITLE]: does what a page tells its reader to do, in an empty folder.

The blocks of the page are taken in order:

- c, json, jsonc, cmake: a file, if the first line is a comment with the name of the file and nothing else ("// train.c").
  Otherwise the block must be an excerpt of a file of the repository.
- sh: bash runs it, and every command must succeed.
- sh no-run: REASON: not run; the reader of the page sees the reason, too.
- text: expected output. Each line must be in the output of the block before, except for numbers. A line that begins with
  "..." stands for any lines.

zoff is the installation under PREFIX, or that of the machine. Exits 77, which ctest counts as skipped, where a command that the page needs is missing."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```(\w+)?[ ]*(.*)$")
NAMED = re.compile(r"^(?://|#|/\*)\s*([\w./-]+\.\w+)\s*(?:\*/)?$")
FILES = ("c", "json", "jsonc", "cmake")
RECIPE = "/* examples/gpt: all that talks to zoff */"  # compared by tests/structure/check_readme.py
SKIPPED = 77
SECONDS = 240


def blocks(text):
    """(language, rest of the info string, line, lines) of each block."""
    found, begun = [], None
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if begun is None and match:
            begun = (match.group(1) or "", match.group(2).strip(), number, [])
        elif begun is not None and line.rstrip() == "```":
            found.append(begun)
            begun = None
        elif begun is not None:
            begun[3].append(line)
    if begun is not None:
        raise ValueError(f"line {begun[2]}: a block that does not end")
    return found


def section_of(text, title):
    """The section of that title, with empty lines for all others, so that line numbers stay."""
    inside, lines = False, []
    for line in text.splitlines():
        inside = line == f"## {title}" if line.startswith("## ") else inside
        lines.append(line if inside else "")
    return "\n".join(lines)


def squeeze(lines):
    return "\n".join(" ".join(line.split()) for line in lines if line.strip())


def sources(root):
    paths = [os.path.join(root, "CMakePresets.json")]
    for top in ("include", "examples", "src", "cuda", "tests", "tools", "cmake"):
        paths += [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(root, top)) for name in names]
    for path in paths:
        if path.endswith((".c", ".h", ".cc", ".cu", ".json", ".cmake", "CMakeLists.txt", ".inc")):
            with open(path, encoding="utf-8") as file:
                yield os.path.relpath(path, root), squeeze(file.read().splitlines())


def without_numbers(line):
    return re.sub(r"\d[\d.,e+-]*", "#", " ".join(line.split()))


def check_output(want, had):
    """Lines that the page shows and the output lacks."""
    there = {without_numbers(line) for line in had.splitlines()}
    return [line for line in want if line.strip() and not line.startswith("...") and without_numbers(line) not in there]


def environment(prefix):
    env = dict(os.environ)
    if prefix:
        prefix = os.path.abspath(prefix)
        env.update(PATH=f"{prefix}/bin:{os.environ['PATH']}", CMAKE_PREFIX_PATH=prefix)
        for folder in ("lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64"):
            if os.path.isdir(f"{prefix}/{folder}/pkgconfig"):
                env["PKG_CONFIG_PATH"] = f"{prefix}/{folder}/pkgconfig"
                env["LD_LIBRARY_PATH"] = f"{prefix}/{folder}"
    env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    env["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    return env


def take(page, block, last, root, env, folder):
    """Run one block of a page; returns (complaint or None, output)."""
    language, info, line, lines = block
    place = f"{page}:{line}"
    if language in FILES:
        name = NAMED.match(lines[0].strip()) if lines else None
        if name:
            os.makedirs(os.path.join(folder, os.path.dirname(name.group(1))), exist_ok=True)
            with open(os.path.join(folder, name.group(1)), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            return None, last
        if lines and lines[0].strip() == RECIPE:
            return None, last
        body = squeeze(lines)
        if not any(body in text for _, text in sources(root)):
            return f"{place}: this {language} block has no file name and is no excerpt of a file of the repository", last
        return None, last
    if language == "text":
        missing = check_output(lines, last)
        return (f"{place}: not among the output of the block before: {missing[0]}" if missing else None), last
    if language != "sh":
        return f"{place}: a block of {language or 'no language'}: use c, json, jsonc, cmake, sh or text", last
    if info.startswith("no-run"):
        return (None if len(info) > 12 else f"{place}: say why it is not run: ```sh no-run: REASON"), last
    script = "\n".join(lines)
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    if done.returncode:
        return f"{place}: exit status {done.returncode} of\n{script}\n{done.stdout}", done.stdout
    return None, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page")
    parser.add_argument("--prefix", help="of the installation; without it zoff is where the compiler looks")
    parser.add_argument("--root", required=True)
    parser.add_argument("--section", help="the only section whose blocks are run")
    parser.add_argument("--needs", action="append", default=[], help="a command without which the page is skipped")
    args = parser.parse_args()
    for command in args.needs:
        if not shutil.which(command):
            print(f"skipped: {args.page} needs {command}")
            return SKIPPED
    with open(os.path.join(args.root, args.page), encoding="utf-8") as file:
        text = file.read()
    found = blocks(section_of(text, args.section) if args.section else text)
    if args.section and not found:
        print(f"{args.page} has no section \"{args.section}\" with a block")
        return 1
    ran, complaints, output = 0, [], ""
    with tempfile.TemporaryDirectory(prefix="zoff-page-") as folder:
        env = environment(args.prefix)
        env["ZOFF_SOURCE"] = os.path.abspath(args.root)
        for block in found:
            complaint, output = take(args.page, block, output, args.root, env, folder)
            ran += block[0] == "sh" and not block[1].startswith("no-run")
            if complaint:
                complaints.append(complaint)
                break
    print("\n".join(complaints) or f"{args.page}{' ' + args.section if args.section else ''}: {len(found)} blocks, {ran} of them were run")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
