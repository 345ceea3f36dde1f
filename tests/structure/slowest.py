#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""slowest.py PRESET CTEST.xml [PRESET CTEST.xml]...: prints the ten slowest tests of these presets, with the slowest
case of each, from ctest's JUnit files. Called by scripts/test."""
import re
import sys
import xml.etree.ElementTree


def slowest_case(output):
    """("Suite.Case", seconds) of Google Test's "[       OK ] Suite.Case (12 ms)", or None."""
    cases = [(int(ms), name) for name, ms in re.findall(r"^\[ +(?:OK|FAILED) +\] (\S+?),?(?: where .*)? \((\d+) ms\)", output, re.M)]
    return (max(cases)[1], max(cases)[0] / 1000) if len(cases) > 1 else None


def read(preset, text):
    """[(seconds, preset, test, slowest case or None)] of the tests that ran."""
    return [(float(case.get("time") or 0), preset, case.get("name"), slowest_case(case.findtext("system-out") or ""))
            for case in xml.etree.ElementTree.fromstring(text).iter("testcase")]


def main():
    found = []
    for preset, path in zip(sys.argv[1::2], sys.argv[2::2]):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                found += read(preset, f.read())
        except OSError as error:
            print(f"== {preset}: no times: {error.strerror}: {path}")
    print("== the ten slowest")
    for seconds, preset, name, case in sorted(found, key=lambda one: -one[0])[:10]:
        print(f"   {seconds:6.1f} s  {preset}: {name}" + (f" ({case[0].split('/', 1)[-1]}: {case[1]:.1f} s)" if case else ""))


if __name__ == "__main__":
    main()
