#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_run_page.py: run_page.py and check_links.py find what they are there for."""
import os
import sys
import tempfile

import check_links
import run_page

ENV = dict(os.environ)
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def result(page):
    """The first complaint about a page, or None."""
    output = ""
    with tempfile.TemporaryDirectory() as folder:
        for block in run_page.blocks(page):
            complaint, output = run_page.take("page", block, output, ROOT, ENV, folder)
            if complaint:
                return complaint
    return None


GOOD = "```c\n// a/b.c\nint main(void) { return 0; }\n```\n```sh\ngrep -c main a/b.c\necho took 1.5 s\n```\n```text\n...\ntook 99 s\n```\n"
BAD = (
    ("```sh\nfalse\n```\n", "exit status 1"),
    ("```sh\nfalse | true\n```\n", "exit status 1"),
    ("```sh\necho one\n```\n```text\ntwo\n```\n", "not among the output"),
    ("```c\nint nobody_has_this_line;\n```\n", "is no excerpt"),
    ("```sh no-run\nfalse\n```\n", "say why"),
    ("```\nx\n```\n", "no language"),
)


def main():
    bad = 0
    if run_page.blocks(run_page.section_of("## A\n```sh\nfalse\n```\n## B\n```sh\ntrue\n```\n## C\n", "B")) != [("sh", "", 6, ["true"])]:
        print("a section is not the blocks below its title")
        bad += 1
    if result(GOOD):
        print(f"a good page is refused: {result(GOOD)}")
        bad += 1
    for page, words in BAD:
        found = result(page)
        if not found or words not in found:
            print(f"not found ({words}): {found}\n{page}")
            bad += 1
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "page.md"), "w", encoding="utf-8") as file:
            file.write("# A `title` here\n[a](page.md#a-title-here) [b](#none) [c](gone.md) [d](https://x) ![e](gone.svg) [f][f]\n\n[f]: gone.json\n")
        if len(list(check_links.complaints(folder, ["page.md"]))) != 4:
            print("not found: four links that lead nowhere")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
