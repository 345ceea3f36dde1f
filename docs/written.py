# SPDX-License-Identifier: Apache-2.0
"""written.py: a page, or a part of one, that a program writes. Its --check only says whether the page is up to date."""
import os
import sys

DOCS = os.path.dirname(os.path.abspath(__file__))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text, source, program):
    """Write the text, or with --check compare it. Return 1 if the page is stale."""
    if "--check" not in sys.argv[1:]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return 0
    if read(path) == text:
        return 0
    print(f"{os.path.relpath(path, os.path.dirname(DOCS))} differs from {source}: run {program}")
    return 1
