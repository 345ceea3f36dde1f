#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_api.py: share/zoff/api.json is what the headers declare, as the C++ compiler sees them.

The script writes a program of static assertions from the JSON: the size, alignment, fields, types and offsets of each struct,
the values of enums and macros, and the type of each function. It compiles when all of them hold. A field or enumerator that the
JSON lacks is an error, too: a structured binding needs all fields, and a switch without default all enumerators. The functions
must be those that the linker script exports."""
import argparse
import json
import os
import re
import subprocess
import sys

REGENERATE = "run: python3 bindings/make.py"


def pointer(function):
    return f"{function['result']} (*)({', '.join(argument['type'] for argument in function['args'])})"


def of_struct(name, struct):
    yield f"static_assert(sizeof({name}) == {struct['size']} && alignof({name}) == {struct['align']}, \"{name}\");"
    for field in struct["fields"]:
        place, array = f"{name}::{field['name']}", f"[{field['array']}]" if "array" in field else ""
        kind = pointer(field["callback"]) if "callback" in field else field["type"] + array
        yield f"static_assert(offsetof({name}, {field['name']}) == {field['offset']} && sizeof({place}) == {field['size']}, \"{place}\");"
        yield f"static_assert(same<decltype({place}), {kind}>, \"{place}\");"
    yield f"inline void all_fields(const {name} &s) {{ auto &[{', '.join('f' + str(i) for i in range(len(struct['fields'])))}] = s; (void)f0; }}"
    if "init" in struct:
        yield f"static_assert(same<decltype({struct['init']}), {name}>, \"{struct['init']}\");"


def of_enum(name, enum):
    values = enum["values"]
    for value in values:
        yield f"static_assert({value['name']} == {value['value']}, \"{value['name']}\");"
    kind = f"decltype({values[0]['name']})" if "." in name else name
    yield f"static_assert(same<{kind}, decltype({values[0]['name']})>, \"{name}\");"
    cases = " ".join(f"case {value['name']}:" for value in values)
    yield f"inline void all_values({kind} v) {{ switch (v) {{ {cases} break; }} }}"


def of_macro(name, macro, calls):
    if macro.get("type") == "void *":
        yield f"static_assert(same<decltype({name}), void *> && std::string_view(TEXT({name})) == \"((void *){macro['value']})\", \"{name}\");"
        return
    if "args" not in macro:
        yield f"static_assert({name} == {macro['value']} && same<decltype({name}), {macro['type']}>, \"{name}\");"
        return
    # The arguments of the macro are those of the call, among a sizeof.
    inner = re.search(r"\((.*)\)$", macro["text"]).group(1)
    given = dict(zip((part.strip().strip("()") for part in re.split(r",\s*", inner)), (argument["type"] for argument in calls[macro["call"]]["args"])))
    values = ", ".join(f"std::declval<{given[argument]}>()" for argument in macro["args"])
    yield f"static_assert(same<decltype({name}({values})), {calls[macro['call']]['result']}>, \"{name}\");"


def program(api):
    """The static assertions as C++17."""
    yield "#include <cstddef>\n#include <string_view>\n#include <type_traits>\n#include <utility>\n#include <zoff/plugin.h>\n#include <zoff/zoff.h>"
    yield "#define TEXT(x) TEXT_OF(x)\n#define TEXT_OF(x) #x"
    yield "template <typename A, typename B> constexpr bool same = std::is_same<typename std::remove_cv<A>::type, B>::value;"
    for name, entry in api["types"].items():
        yield f"static_assert(same<{name}, {entry['type']}>, \"{name}\");"
    for name in api["handles"]:
        yield f"static_assert(std::is_class<{name}>::value, \"{name}\");"
    for name, callback in api["callbacks"].items():
        yield f"static_assert(same<{name}, {pointer(callback)}>, \"{name}\");"
    for name, call in api["calls"].items():
        yield f"static_assert(same<decltype(&{name}), {pointer(call)}>, \"{name}\");"
    for name, struct in api["structs"].items():
        yield from of_struct(name, struct)
    for name, enum in api["enums"].items():
        yield from of_enum(name, enum)
    for name, macro in api["macros"].items():
        yield from of_macro(name, macro, api["calls"])


def complaints(api, cxx, include, symbols):
    """Every difference between the JSON and the headers."""
    with open(symbols, encoding="utf-8") as file:
        exported = set(re.findall(r"^\s+(zoff_\w+);", file.read(), re.M))
    found = [f"{name}: {'not in the JSON' if name in exported else 'not exported'}" for name in sorted(exported ^ set(api["calls"]))]
    done = subprocess.run([cxx, "-std=c++17", "-Werror=switch", "-fsyntax-only", "-I", include, "-xc++", "-"], input="\n".join(program(api)),
                          capture_output=True, text=True, check=False)
    if done.returncode:
        found += re.findall(r"error: (.*)", done.stderr) or [done.stderr]
    return found


def arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("cxx", "include", "symbols", "api"):
        parser.add_argument("--" + name, required=True)
    return parser.parse_args()


def main():
    args = arguments(__doc__)
    with open(args.api, encoding="utf-8") as file:
        api = json.load(file)
    found = complaints(api, args.cxx, args.include, args.symbols)
    print("\n".join(found + [f"{os.path.basename(args.api)} is not what the headers declare: {REGENERATE}"] if found else
                    [f"{len(api['structs'])} structs and {len(api['calls'])} calls are as the headers declare them"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
