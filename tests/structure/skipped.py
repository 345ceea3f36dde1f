#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""skipped.py PRESET CTEST.xml: prints the tests that did not run, with the reasons, and what those that failed have said, from
ctest's JUnit file. Called by scripts/test."""
import collections
import re
import sys
import xml.etree.ElementTree


def reason(output, otherwise):
    lines = [line.strip() for line in output.splitlines()]
    for number, line in enumerate(lines):
        if line.lower().startswith("skipped: "):
            return line[len("skipped: "):]
        if line.endswith(": Skipped"):  # Google Test: the reason follows on the next lines
            words = [w for w in lines[number + 1:number + 3] if w and not w.startswith("[")]
            return " ".join(words) or "no reason given"
    return otherwise


def cases(name, output):
    """[(test, reason)] of the cases that Google Test skipped in a test that is a whole suite."""
    found, lines = [], []
    for line in output.splitlines():
        skipped = re.match(r"\[  SKIPPED \] (\S+?),?(?: where .*)? \(\d+ ms\)", line)
        if re.match(r"\[ RUN      \] ", line):
            lines = []
        elif skipped:
            found.append((f"{name.split('.')[0]}.{skipped.group(1)}", reason("\n".join(lines), "no reason given")))
        lines.append(line)
    return found


def read(text):
    """[(test, reason)] of the tests that did not run."""
    found = []
    for case in xml.etree.ElementTree.fromstring(text).iter("testcase"):
        skip, output = case.find("skipped"), case.findtext("system-out") or ""
        if skip is not None or case.get("status") in ("notrun", "disabled"):
            otherwise = case.get("status") if skip is None else skip.get("message") or "no reason given"
            found.append((case.get("name").split("  # GetParam")[0], reason(output, otherwise)))
        else:
            found += cases(case.get("name"), output)
    return found


def complaints(text):
    """[(test, lines)] of the tests that failed: what Google Test says of each expectation, or else the last lines."""
    found = []
    for case in xml.etree.ElementTree.fromstring(text).iter("testcase"):
        if case.get("status") != "fail":
            continue
        lines = (case.findtext("system-out") or "").splitlines()
        starts = [i for i, line in enumerate(lines) if re.search(r":\d+: Failure$|: runtime error: |^(==\d+==)?(ERROR|WARNING): ", line)]
        told = [line for start in starts[:2] for line in lines[start:start + 8]]
        found.append((case.get("name").split("  # GetParam")[0], told or lines[-12:]))
    return found


def main():
    preset, path = sys.argv[1:]
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        found = read(text)
    except OSError as error:
        print(f"== {preset}: no list of skipped tests: {error.strerror}: {path}")
        return
    print(f"== {preset}: {len(found)} tests were skipped")
    by_reason = collections.defaultdict(list)  # reasons that differ only in a path count as one
    for name, why in found:
        by_reason[re.sub(r"/\S+", "", why)].append((name, why))
    for cases in by_reason.values():
        names, why = [name for name, _ in cases], cases[0][1]
        print(f"   {why}: {', '.join(names[:4])}" + (f" and {len(names) - 4} more" if len(names) > 4 else ""))
    for name, lines in complaints(text):
        print(f"== {preset}: {name} failed:")
        print("\n".join(f"   {line}" for line in lines))


if __name__ == "__main__":
    main()
