#!/usr/bin/env python3
"""make_keys.py [--check]: write the table of DeepSpeed's keys into come-from-deepspeed.md.

The source is docs/CONFIG.md, which a test compares with the table that parses a configuration. Keys of one section with the same
answer share a row. --check only says whether the page is up to date."""
import os
import re
import sys

from written import DOCS, read, write

PAGE = os.path.join(DOCS, "how-to", "come-from-deepspeed.md")
BEGIN, END = "<!-- keys: written by docs/make_keys.py -->\n", "<!-- end of keys -->\n"


def rows(text):
    """(heading of level 2, cells) for each row of a table."""
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| `"):
            yield heading, [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def answers(text):
    """{key: what zoff does with it}, without zoff's own keys."""
    found = {}
    for heading, cells in rows(text):
        key = cells[0].strip("`")
        if key.startswith("zoff"):
            continue
        if heading == "Keys that zoff acts on":
            found[key] = "acts on it"
        elif heading == "Values that are refused":
            found[key] = f"accepts only {cells[1].replace('nothing, or ', '')}: {cells[3]}" if cells[1] != "nothing" else f"refuses it: {cells[3]}"
        elif heading == "Known keys that zoff ignores":
            found[key] = f"ignores it: {cells[1]}"
        elif heading == "Other names":
            found[key] = f"reads it as {cells[1]}"
    return found


def order(row):
    """Keys that zoff acts on come first, then those that it refuses."""
    answer = row[0]
    return ["acts", "acce", "refu", "read", "igno"].index(answer[:4]), answer


def table(text):
    sections = {}
    for key, answer in answers(text).items():
        section, _, name = key.rpartition(".")
        sections.setdefault(section, {}).setdefault(answer, []).append(name)
    lines = []
    for section in sorted(sections):
        lines += ["", f"### {section}" if section else "### The top level", "", "| keys | zoff |", "|---|---|"]
        for answer, names in sorted(sections[section].items(), key=order):
            lines.append(f"| {', '.join(f'`{name}`' for name in sorted(names))} | {answer} |")
    return "\n".join(lines[1:]) + "\n"


def main():
    before, _, rest = read(PAGE).partition(BEGIN)
    _, _, after = rest.partition(END)
    made = table(read(os.path.join(DOCS, "CONFIG.md")))
    return write(PAGE, f"{before}{BEGIN}\n{made}\n{END}{after}", "docs/CONFIG.md", "docs/make_keys.py")


if __name__ == "__main__":
    sys.exit(main())
