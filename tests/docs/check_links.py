#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_links.py ROOT: every relative link of every page leads to a file of the repository, and to a heading or an anchor
(<a id="..."></a>, in a line of its own) that is there."""
import os
import re
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "structure"))
import check_rooms

LINK = re.compile(r"(?<!!)!?\[(?:[^\]\\]|\\.)*\]\(([^)\s]+)\)")
DEFINITION = re.compile(r"^\[[^\]]+\]: +(\S+)$", re.M)


def headings(path):
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S)
    anchors = set(re.findall(r'^<a id="([^"]+)"></a>$', text, re.M))
    return anchors | {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in re.findall(r"^#+ +(.*)$", text, re.M)}


def complaints(root, pages):
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as file:
            text = re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S)
        for link in LINK.findall(text) + DEFINITION.findall(text):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, heading = link.partition("#")
            path = os.path.normpath(os.path.join(root, os.path.dirname(page), target)) if target else os.path.join(root, page)
            if not os.path.exists(path):
                yield f"{page}: {link}: there is no such file"
            elif heading and path.endswith(".md") and heading not in headings(path):
                yield f"{page}: {link}: {os.path.relpath(path, root)} has no such heading"


def main():
    root = sys.argv[1]
    names = [name for name in check_rooms.Tree(root).files if name.endswith(".md")]
    found = list(complaints(root, names))
    print("\n".join(found) or f"the links of {len(names)} pages lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
