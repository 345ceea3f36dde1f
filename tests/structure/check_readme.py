#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_readme.py: checks the limits of README.md, and that the recipe in docs/how-to/link-a-trainer.md is the code that examples/gpt compiles.

The code is between comments "zoff: begin" and "zoff: end". The quotation is a ```c block whose first line is FIRST. They are
compared line by line, without indentation and empty lines. Exits with 77 (ctest: skipped) if the page has no such block."""
import glob
import os
import re
import sys

PAGE = "docs/how-to/link-a-trainer.md"
FIRST = "/* examples/gpt: all that talks to zoff */"
LINES_MOST = 10
BEGIN = re.compile(r"^\s*/[*/]\s*zoff: begin\b")
END = re.compile(r"^\s*/[*/]\s*zoff: end\b")


def squeeze(lines):
    return [" ".join(line.split()) for line in lines if line.strip()]


def quoted(readme):
    """The lines of the recipe in the page's text, or None without one."""
    for block in re.findall(r"^```c\n(.*?)^```", readme, re.M | re.S):
        lines = squeeze(block.splitlines())
        if lines and lines[0] == FIRST:
            return lines[1:]
    return None


def spans(sources):
    """The lines between the marks, in the order of the sources (name, text). Raises ValueError for a mark without its pair."""
    found = []
    for name, text in sources:
        begun = 0
        for number, line in enumerate(text.splitlines(), 1):
            if BEGIN.search(line):
                if begun:
                    raise ValueError(f"{name}:{number}: begins inside the span of line {begun}")
                begun = number
            elif END.search(line):
                if not begun:
                    raise ValueError(f"{name}:{number}: ends what did not begin")
                begun = 0
            elif begun:
                found.append(line)
        if begun:
            raise ValueError(f"{name}:{begun}: a span that does not end")
    return squeeze(found)


def limits(readme):
    """README.md is short, and has a short program on its first screen."""
    lines = readme.splitlines()
    if len(lines) > 120:
        yield f"README.md has {len(lines)} lines; 120 is the most"
    for number, line in enumerate(lines, 1):
        if len(line) > 100:
            yield f"README.md:{number}: {len(line)} columns; 100 is the most"
    begin = next((number for number, line in enumerate(lines, 1) if line == "```c"), None)
    if begin is None:
        yield "README.md has no program"
        return
    if begin > 40:
        yield f"README.md has its first code in line {begin}, below the first screen of 40 lines"
    count = lines[begin:].index("```")
    if count > 25:
        yield f"the program of README.md has {count} lines; 25 is the most"


def compare(readme, sources):
    """Return the complaints; None if the page has no recipe."""
    recipe = quoted(readme)
    if recipe is None:
        return None
    try:
        code = spans(sources)
    except ValueError as error:
        return [str(error)]
    complaints = []
    if not code:
        complaints.append("examples/gpt has no lines between 'zoff: begin' and 'zoff: end'")
    if len(code) > LINES_MOST:
        complaints.append(f"examples/gpt takes {len(code)} lines to talk to zoff; {LINES_MOST} is the most")
    for line in code:
        if line not in recipe:
            complaints.append(f"in examples/gpt, not in {PAGE}: {line}")
    for line in recipe:
        if line not in code:
            complaints.append(f"in {PAGE}, not in examples/gpt: {line}")
    if not complaints and code != recipe:
        complaints.append(f"{PAGE} has the lines of examples/gpt in another order")
    return complaints


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    readme = os.path.join(root, PAGE)
    if not os.path.exists(readme):
        print(f"skipped: there is no {PAGE}")
        return 77
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        wrong = list(limits(file.read()))
    sources = [(path, open(path, encoding="utf-8").read()) for path in sorted(glob.glob(os.path.join(root, "examples/gpt/*.c")))]
    complaints = compare(open(readme, encoding="utf-8").read(), sources)
    if complaints is None:
        print(f"skipped: {PAGE} has no ```c block that begins with {FIRST}")
        return 77
    complaints = wrong + complaints
    print("\n".join(complaints) or f"{PAGE} quotes what examples/gpt compiles")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
