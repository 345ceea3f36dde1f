#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_house.py: checks limits on the structure of src/. Files must not call each other in a cycle. No struct may have too many
fields, and no function may be longer than a page. Shared code must not ask about modes. No room may be called by one below it
through a pointer. Only the table of matrix rules knows Muon.

house.txt lists the present exceptions, a line each. The list may only get shorter: a new violation is a complaint, and so is a
line without a violation.

    check_house.py [ROOT]           compare
    check_house.py [ROOT] --list    print the present violations as lines of house.txt
    check_house.py [ROOT] --counts  print their number for each kind"""
import collections
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_rooms import Tree, line_of  # noqa: E402

MOST_FIELDS = 20  # fields of a struct
MOST_LINES = 60   # lines of a function
# Functions that return the mode of an engine. Routes and tiers are chosen in one place; no other code may ask again.
QUESTIONS = ("zoff_transfer_device_is", "zoff_transfer_ranks_several", "zoff_transfer_device_direct_is", "zoff_transfer_device_tier_has")
# Fields with the same information. src/zero is exempt, because it makes plans.
FIELDS = {"replicated": re.compile(r"\bplan(?:->|\.)replicated\b"), "reaches": re.compile(r"\broute(?:->|\.)reaches\b")}
# The engine itself, and the room above it.
ABOVE = ("src/engine/", "src/checkpoint/")
MAY_ASK = {"src/engine/rows.c", "src/transfer/route.c", "src/transfer/transfer.h",
           "src/agreement/listed.c"}  # files that choose the mode; the last one sends it to other ranks

WORD = re.compile(r"\b(?:zoff|ZOFF)_\w+\b")
# The head of a function at the left margin, and its body up to the closing brace there.
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
    """Tarjan's algorithm, without recursion."""
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


def fields(body):
    """Return the fields of a struct. Fields of a nested struct count as its own."""
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
        if not path.startswith(ABOVE) and re.search(r"\bzoff_engine\b(?!_)", tree.bare(path)):
            yield path


def questions(tree):
    """How often each file asks about a mode; the number may not grow."""
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


# Other code asks zoff_adam_matrix_rules_of(), so that it serves each optimizer of matrices.
MUON = re.compile(r"(?:[!=]=\s*|\bcase\s+)ZOFF_OPTIMIZER_MUON\b|\bZOFF_OPTIMIZER_MUON\s*[!=]=")
KNOW_MUON = {"src/cpu_adam/hyper.c", "src/model/groups.c"}  # its numbers, and its name


def muon(tree):
    """Files that ask whether an optimizer is Muon."""
    yield from (path for path in tree.under("src/") if path not in KNOW_MUON and MUON.search(tree.bare(path)))


POINTER = re.compile(r"\(\*(\w+)\)\(")
FILLED = re.compile(r"(?:\(\s*(\w+)\s*\)|\b(\w+)\s+\w+(?:\[\w*\])?\s*=)\s*\{")


def block(text, start):
    """The text between a brace at `start` and the one that closes it."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start:i]
    return text[start:]


def room_of(path):
    return path.split("/")[1]


def upward(tree):
    """Functions of a room that a room below it calls through a pointer: struct, field and the file that sets it."""
    pointers, defined = {}, collections.defaultdict(set)
    for path in tree.under("src/", ".h"):
        for match in STRUCT.finditer(tree.bare(path)):
            for name in POINTER.findall(match.group("body")):
                pointers.setdefault(match.group("name"), {})[name] = room_of(path)
    for path in sources(tree):
        defined[room_of(path)].update(match.group("name") for match in functions(tree, path))
    for path in sources(tree):
        text, found = tree.bare(path), set()
        for match in FILLED.finditer(text):
            struct = next(group for group in match.groups() if group)
            body = block(text, match.end() - 1) if struct in pointers else ""
            for field, function in re.findall(r"\.(\w+)\s*=\s*(\w+)", body):
                below = pointers[struct].get(field, room_of(path))
                if below != room_of(path) and function in defined[room_of(path)]:
                    found.add(f"{path} {struct}.{field}")
        yield from found


KINDS = collections.OrderedDict([("cycle", in_cycle), ("struct", large_structs), ("function", long_functions),
                                 ("engine", strangers), ("question", questions),
                                 ("muon", muon), ("upward", upward)])


def offenders(tree):
    return [f"{kind} {line}" for kind, find in KINDS.items() for line in sorted(find(tree))]


def compare(today, listed):
    """Complaints: new violations, and listed ones that no longer exist."""
    for line in today:
        if line not in listed:
            yield f"{line}: not in tests/structure/house.txt; change the code"
    for line in sorted(set(listed) - set(today)):
        yield f"{line}: fixed; remove the line from tests/structure/house.txt"


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
    print(f"{len(today)} violations, {len(listed)} are listed: {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
