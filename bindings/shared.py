# SPDX-License-Identifier: Apache-2.0
"""shared.py: questions about the API that the writers of more than one language ask."""
import collections
import re

SizeOf = collections.namedtuple("SizeOf", "struct")  # the size of a struct, among the arguments that a macro passes


def sized_macros(api):
    """(name, macro, call, passed) of each macro that adds the size of a struct to the arguments of a call. The call has the
    arguments of the macro; `passed` has names of arguments and SizeOf."""
    for name, macro in api["macros"].items():
        if "call" not in macro:
            continue
        call = api["calls"][macro["call"]]
        given = [argument for argument in call["args"] if argument["name"] in macro["args"]]
        kinds = {argument["name"]: argument["type"] for argument in given}
        passed = []
        for part in re.split(r",\s*", re.search(r"\((.*)\)$", macro["text"])[1]):
            sized = re.fullmatch(r"sizeof \*\((\w+)\)", part)
            passed.append(SizeOf(kinds[sized[1]].replace("const ", "").rstrip("* ")) if sized else part.strip("()"))
        yield name, macro, {**call, "args": given}, passed


def ordered(api):
    """The structs, each behind those that it contains or points to."""
    done = {}

    def add(name):
        for field in api["structs"][name]["fields"]:
            target = field["type"].replace("const ", "").rstrip("* ")
            if target in api["structs"] and target not in done:
                add(target)
        done.setdefault(name, api["structs"][name])

    for name in api["structs"]:
        add(name)
    return done.items()


def flags_field(api, name):
    """The field that an enumeration of flags is for; None for one that is a type of its own."""
    struct, _, field = name.partition(".")
    return next(f for f in api["structs"][struct]["fields"] if f["name"] == field) if field else None
