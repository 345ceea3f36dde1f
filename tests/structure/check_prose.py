#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_prose.py [--draw SEED] ROOT [FILE ...]: the limits on sentences that a program can check.

A sentence has at most 35 words. It does not begin with "Of", "What" or "Whatever", which turn it inside out. This holds for
comments, messages and pages. Names of tests begin with none of these words, nor with "That" or "Who". --draw chooses 50 comments, 20 messages and 10 paragraphs at random, for a person to read."""
import argparse
import os
import random
import re
import sys

import prose

MOST_WORDS = 35
TURNED = re.compile(r"^(?:Of|What|Whatever)\b(?!.*\?$)")
TEST_NAME = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\w+, ((?:[Oo]f|[Ww]hat(?:ever)?|[Tt]hat|[Ww]ho)(?=[A-Z_])\w*)\)", re.M)


def complaints(root, names):
    """(file, line, sentence, why) for each sentence beyond a limit."""
    for name in names:
        for _, name_, line, text in prose.of_file(root, name):
            for sentence in prose.sentences(text):
                count = len(prose.words(sentence))
                if count > MOST_WORDS:
                    yield name_, line, sentence, f"{count} words, at most {MOST_WORDS}"
                elif TURNED.match(sentence):
                    yield name_, line, sentence, f"opens with {sentence.split()[0]!r}"
        if name.endswith(".cc"):
            with open(os.path.join(root, name), encoding="utf-8") as file:
                text = file.read()
            for found in TEST_NAME.finditer(text):
                yield name, text.count("\n", 0, found.start()) + 1, found[1], "a test is named by what holds"


def draw(root, names, seed):
    pieces = [piece for name in names for piece in prose.of_file(root, name)]
    chance = random.Random(seed)
    for kind, count in (("comment", 50), ("message", 20), ("page", 10)):
        known = [piece for piece in pieces if piece[0] == kind and len(piece[3].split()) >= (25 if kind == "page" else 3)]
        for _, name, line, text in chance.sample(known, min(count, len(known))):
            print(f"{kind} {name}:{line}: {text}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--draw", type=int)
    args = parser.parse_intermixed_args()
    known = prose.files(args.root)
    names = [name for name in known if not args.files or any(name.startswith(file) for file in args.files)]
    if args.draw is not None:
        draw(args.root, names, args.draw)
        return 0
    bad = list(complaints(args.root, names))
    for name, line, sentence, why in bad:
        print(f"{name}:{line}: {why}: {sentence[:300]}")
    print(f"{len(bad)} sentences to mend" if bad else "every sentence is within the limits")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
