#!/usr/bin/env python3
"""check_house.py: holds src/ to the proportions of the house: no cycle of calls between files, no folder that is most of it, no
struct that knows everything, no function over a page, no question about modes in shared code, a test for each file.

What is not so yet is listed in house.txt, a line each. The list only gets shorter: a new offender is a complaint, and so is a
line that nobody offends against any more.

    check_house.py [ROOT]           compare
    check_house.py [ROOT] --list    print today's lines
    check_house.py [ROOT] --counts  print how many there are of each kind"""
import collections
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_rooms import Tree, line_of  # noqa: E402

MOST_FILES = 20       # .c files of a folder
MOST_SHARE = 5        # a folder has at most one in so many lines of src/
MOST_FIELDS = 20      # of a struct
MOST_LINES = 60       # of a function
# What asks in which mode an engine is. Routes and tiers are chosen in one place, and nobody asks again.
QUESTIONS = ("zoff_transfer_device_is", "zoff_transfer_ranks_several", "zoff_transfer_device_direct_is", "zoff_transfer_device_tier_has",
             "zoff_transfer_pieces_accumulates")
# Fields that say the same; src/zero makes plans.
FIELDS = {"replicated": re.compile(r"\bplan(?:->|\.)replicated\b"), "reaches": re.compile(r"\broute(?:->|\.)reaches\b")}
MAY_ASK = {"src/engine/rows.c", "src/transfer/links.c", "src/transfer/transfer.h",
           "src/agreement/listed.c"}  # files that choose; the last one tells other ranks

WORD = re.compile(r"\b(?:zoff|ZOFF)_\w+\b")
# The head of a function at the left margin, and its body up to the brace there.
FUNCTION = re.compile(r"^(?P<head>[A-Za-z_][\w \t*]*?)\b(?P<name>\w+)\((?P<rest>[^;{}]*)\)\s*\n?\{\n(?P<body>.*?)^\}", re.M | re.S)
STRUCT = re.compile(r"^(?:typedef )?struct (?P<name>\w+) \{\n(?P<body>.*?)^\}", re.M | re.S)


def sources(tree):
    return [p for p in tree.under("src/", ".c")]


def functions(tree, path):
    for match in FUNCTION.finditer(tree.bare(path)):
        if "typedef" not in match.group("head").split():
            yield match


def calls(tree):
    """{file: the files whose functions it names}."""
    owner = {}
    for path in sources(tree):
        for match in functions(tree, path):
            if "static" not in match.group("head").split():
                owner[match.group("name")] = path
    used = {}
    for path in sources(tree):
        text = tree.bare(path)
        used[path] = {owner[name] for name in set(WORD.findall(text)) if name in owner and owner[name] != path}
    return used


def strong_components(graph):
    """Tarjan's, without recursion."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for following in rest:
                if following not in index:
                    index[following] = low[following] = len(index)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(sorted(graph[following]))))
                    break
                if following in on_stack:
                    low[node] = min(low[node], index[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while not group or group[-1] != node:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    found.append(sorted(group))
    return found


def in_cycle(tree):
    for group in strong_components(calls(tree)):
        if len(group) > 1:
            yield from group


def large_folders(tree):
    lines, files = collections.Counter(), collections.Counter()
    for path in tree.under("src/"):
        folder = os.path.dirname(path)
        lines[folder] += tree.text(path).count("\n")
        files[folder] += path.endswith(".c")
    for folder in sorted(files):
        if files[folder] > MOST_FILES:
            yield f"{folder} files"
        if lines[folder] * MOST_SHARE > sum(lines.values()):
            yield f"{folder} lines"


def fields(body):
    """The fields of a struct that is not nested; those of a struct inside count as its own."""
    body, before = re.sub(r"__attribute__\s*\(\([^()]*\)\)", "", body), None
    while body != before:  # parameters of parameters, too
        body, before = re.sub(r"\([^()]*\)", "", body), body
    return sum(1 + statement.count(",") for statement in body.split(";") if statement.strip(" \t\n}"))


def large_structs(tree):
    for path in tree.under("src/"):
        for match in STRUCT.finditer(tree.bare(path)):
            if fields(match.group("body")) > MOST_FIELDS and not match.group("name").endswith(("_opts", "_config_values")):
                yield f"{path} {match.group('name')}"


def long_functions(tree):
    for path in sources(tree):
        for match in functions(tree, path):
            if match.group("body").count("\n") + 2 > MOST_LINES:
                yield f"{path} {match.group('name')}"


def strangers(tree):
    """Files outside of engine/ that name the engine."""
    for path in tree.under("src/"):
        if not path.startswith("src/engine/") and re.search(r"\bzoff_engine\b(?!_)", tree.bare(path)):
            yield path


def questions(tree):
    """How often a file asks about a mode: so many is the most it may."""
    for path in tree.under("src/"):
        text = tree.bare(path)
        for name in QUESTIONS:
            asked = len(re.findall(rf"\b{name}\(", text)) - len(re.findall(rf"^\w[^\n;]*\b{name}\([^;]*?\)\s*(?:;|\n\{{)", text, re.M))
            if asked > 0 and path not in MAY_ASK:
                yield f"{path} {name} {asked}"
        for name, field in FIELDS.items():
            asked = len(field.findall(text))
            if asked and path not in MAY_ASK and not path.startswith("src/zero/"):
                yield f"{path} {name} {asked}"


def without_test(tree):
    """A test of the same name is the file's if it is not another room's, a benchmark's or an example's."""
    tests = [p for p in tree.under("tests/", "_test.cc") if not p.startswith(("tests/bench/", "tests/e2e/gpt/"))]
    for path in sources(tree):
        room, name = path.split("/")[1], os.path.splitext(os.path.basename(path))[0]
        mirrors = [p for p in tests if os.path.basename(p) == f"{name}_test.cc"]
        if not any(not p.startswith("tests/unit/") or p.split("/")[2] == room for p in mirrors):
            yield path


KINDS = collections.OrderedDict([("cycle", in_cycle), ("folder", large_folders), ("struct", large_structs), ("function", long_functions),
                                 ("engine", strangers), ("question", questions), ("untested", without_test)])


def offenders(tree):
    return [f"{kind} {line}" for kind, find in KINDS.items() for line in sorted(find(tree))]


def compare(today, listed):
    """Complaints: what is new, and what is listed in vain."""
    for line in today:
        if line not in listed:
            yield f"{line}: not in tests/structure/house.txt; redraw it"
    for line in sorted(set(listed) - set(today)):
        yield f"{line}: mended; take the line out of tests/structure/house.txt"


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.realpath(arguments[0] if arguments else os.path.join(here, "..", ".."))
    tree = Tree(root)
    today = offenders(tree)
    if "--list" in sys.argv:
        print("\n".join(today))
        return 0
    if "--counts" in sys.argv:
        for kind in KINDS:
            print(f"{kind:9} {sum(line.startswith(kind + ' ') for line in today)}")
        return 0
    listed = [line for line in tree.text("tests/structure/house.txt").splitlines() if line and not line.startswith("#")]
    complaints = list(compare(today, listed))
    for complaint in complaints:
        print(complaint)
    print(f"{len(today)} lines are not as they should be, {len(listed)} are listed: {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
