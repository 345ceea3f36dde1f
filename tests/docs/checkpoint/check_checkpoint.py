#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_checkpoint.py ROOT SAMPLE: a reader that was written from docs/CHECKPOINT.md reads what the library writes.

SAMPLE is the program of write_sample.cc. The manifests must fit docs/checkpoint.schema.json, whose members must be those of the
tables in docs/CHECKPOINT.md. A few damages must be found: otherwise the reader would prove nothing."""
import array
import glob
import json
import math
import os
import re
import subprocess
import sys
import tempfile

import read_checkpoint
from read_checkpoint import Bad, Checkpoint, HASH, Layout, latest

FAILURES = []


def expect(holds, words):
    if not holds:
        FAILURES.append(words)


def complaints(schema, value, root, where="manifest"):
    """Where a value does not fit a schema, as far as checkpoint.schema.json uses its words."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    types = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}
    known = {"$schema", "title", "$defs", "type", "required", "properties", "items", "const", "enum", "pattern", "oneOf", "minimum", "maximum",
             "exclusiveMinimum", "multipleOf", "minItems", "maxItems", "uniqueItems"}
    expect(set(schema) <= known, f"this test does not know {set(schema) - known}")
    if "oneOf" in schema:
        fits = [not list(complaints(one, value, root, where)) for one in schema["oneOf"]]
        if sum(fits) != 1:
            yield f"{where} fits {sum(fits)} of oneOf"
    if "type" in schema and (not isinstance(value, types[schema["type"]]) or isinstance(value, bool)):
        yield f"{where} is no {schema['type']}"
        return
    tests = {"const": lambda x: value == x, "enum": lambda x: value in x, "pattern": lambda x: re.search(x, value), "minimum": lambda x: value >= x,
             "maximum": lambda x: value <= x, "exclusiveMinimum": lambda x: value > x, "multipleOf": lambda x: value % x == 0,
             "minItems": lambda x: len(value) >= x, "maxItems": lambda x: len(value) <= x,
             "uniqueItems": lambda x: not x or len(set(value)) == len(value), "required": lambda x: set(x) <= set(value)}
    for word, test in tests.items():
        if word in schema and not test(schema[word]):
            yield f"{where} breaks {word} {schema[word]}"
    for name, one in schema.get("properties", {}).items():
        if name in value:
            yield from complaints(one, value[name], root, f"{where}.{name}")
    if "items" in schema:
        for i, one in enumerate(value):
            yield from complaints(schema["items"], one, root, f"{where}[{i}]")


def unknown(schema, value, root, where="manifest"):
    """Members that the library writes and the schema does not have."""
    schema = next((one for one in schema.get("oneOf", ()) if "properties" in one), schema)
    if isinstance(value, list) and "items" in schema:
        for one in value:
            yield from unknown(schema["items"], one, root, where + "[]")
    elif isinstance(value, dict) and "properties" in schema:
        yield from (f"{where}.{name}" for name in value if name not in schema["properties"])
        for name, one in schema["properties"].items():
            if name in value:
                yield from unknown(one, value[name], root, f"{where}.{name}")


def check_page(root, schema):
    """The tables of the page have the members of the schema."""
    with open(os.path.join(root, "docs/CHECKPOINT.md"), encoding="utf-8") as file:
        page = file.read()
    tables = [re.findall(r"^\| `(\w+)` \|", table, re.M) for table in re.findall(r"\| member \| value \|\n(.*?)\n\n", page, re.S)]
    items = [schema["properties"]] + [schema["properties"][name]["items"]["properties"] for name in ("params", "groups", "files")]
    for table, members in zip(tables, items):
        expect(table == list(members), f"docs/CHECKPOINT.md has {table}, the schema {list(members)}")
    expect(len(tables) == 4, "docs/CHECKPOINT.md has another number of tables of members")
    example = json.loads(re.search(r"```json\n(.*?)```", page, re.S)[1])
    for words in complaints(schema, example, schema):
        expect(False, f"the example of docs/CHECKPOINT.md: {words}")


def value(index, kind, element):
    """As sample::value() of tests/unit/archive/sample.h."""
    return (index * 7 + kind * 3 + element * 5) % 199 * 0.5


def check_sample(checkpoint):
    params = [(b"a%\xff b", 15000, "012"), (b"frozen", 7, "3"), (b"empty", 0, "0"), (b"one", 1, "02"), (b"tied", 15000, ""),
              (b"\n\x01\x7f\"\\/", 48, "012")]
    wanted = {(name, read_checkpoint.KINDS[int(kind)]): [value(i, int(kind), k) for k in range(count)]
              for i, (name, count, kinds) in enumerate(params) for kind in kinds}
    expect(checkpoint.states == wanted, "other states than were written")
    expect(checkpoint.data == {(b"rng", None): b"hello"}, f"other data: {checkpoint.data}")
    expect(read_checkpoint.unescape(checkpoint.manifest["params"][4]["tied_to"]) == b"a%\xff b", "another owner")
    expect(checkpoint.manifest["loss_scaler"] == {"scale": 65536.5, "iterations": 40, "last_overflow": -1, "hysteresis": 2}, "another loss scaler")


def check_formats(folder, schema):
    """The numbers of checkpoints of an engine, with each format of moments, are those of its states."""
    for moments in ("fp32", "bf16", "m8v16", "q8"):
        checkpoint = Checkpoint(os.path.join(folder, moments, latest(os.path.join(folder, moments))))
        check_schema(schema, checkpoint.manifest)
        with open(os.path.join(folder, moments + ".numbers"), "rb") as file:
            wanted = array.array("f", file.read())
        have = [checkpoint.states[read_checkpoint.unescape(p["name"]), kind] for p in checkpoint.manifest["params"] for kind in ("master", "m", "v")]
        expect(array.array("f", [x for some in have for x in some]) == wanted, f"other numbers with moments in {moments}")
        expect(any(wanted), "a checkpoint of zeros proves nothing")


def check_layouts(root):
    """The descriptions of the golden state files have each element of each state on one rank, and a flipped bit is found."""
    paths = sorted(glob.glob(os.path.join(root, "tests/golden/states_*/*.layout")))
    left = {}
    for path in paths:
        with open(path, "rb") as file:
            data = file.read()
        layout = Layout(data)
        expect(len(glob.glob(os.path.join(os.path.dirname(path), "*.layout"))) == layout.ranks, f"{path}: other ranks")
        expect([p["dims"] for p in layout.params][:2] in ([[4200], [40]], [[1100], [40]], [[22, 50], [40]]), f"{path}: other parameters")
        for (index, kind, _, _), (_, _, form, count) in layout.places.items():
            param = layout.params[index]
            expect(kind in param["states"] and form in read_checkpoint.ALLOWED[kind], f"{path}: {kind} of {param['name']}, {form}")
            key = os.path.dirname(path), index, kind
            left[key] = left.get(key, math.prod(param["dims"])) - count
        for at in (3, 20, 50, 100, len(data) - 1):
            try:
                Layout(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
                expect(HASH is None, f"the reader does not see that byte {at} of {path} differs")
            except (Bad, ValueError):
                pass
    expect(len(paths) == 13, f"{len(paths)} descriptions of golden state files")
    expect(len(left) >= 7 * 6 and not any(left.values()), f"elements that no rank has, or several: {left}")


def check_damage(folder):
    """The reader finds a flipped bit in each part of the file."""
    name, = (name for name in os.listdir(folder) if name.endswith(".states"))
    path = os.path.join(folder, name)
    with open(path, "rb") as file:
        data = file.read()
    for at in (4000, 5000, len(data) - 1):
        with open(path, "wb") as file:
            file.write(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
        try:
            Checkpoint(folder)
            expect(False, f"the reader does not see that byte {at} differs")
        except Bad:
            pass
    with open(path, "wb") as file:
        file.write(data)


def check_schema(schema, manifest):
    for words in [*complaints(schema, manifest, schema), *(f"{name} is not in the schema" for name in unknown(schema, manifest, schema))]:
        expect(False, words)
    try:
        import jsonschema
        jsonschema.Draft202012Validator(schema).validate(manifest)
    except (ImportError, AttributeError):
        pass


def main():
    root, sample = sys.argv[1:]
    with open(os.path.join(root, "docs/checkpoint.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    check_page(root, schema)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sample, folder], check=True)
        one = os.path.join(folder, "one", latest(os.path.join(folder, "one")))
        two = os.path.join(folder, "two", latest(os.path.join(folder, "two")))
        read = [Checkpoint(one), Checkpoint(two, "tp0"), Checkpoint(two, "tp1")]
        for checkpoint in read:
            check_sample(checkpoint)
        expect(read[1].manifest["engines"] == read[2].manifest["engines"] == 2, "another number of engines")
        ranks = Checkpoint(os.path.join(folder, "ranks/step-7"))
        expect(ranks.states == {(b"w", "master"): [float(k // 1024) for k in range(3072)]}, "other states of three ranks")
        expect(ranks.data == {(b"rng", 0): b"data of 0", (b"rng", 1): b"data of 1", (b"rng", 2): b"data of 2", (b"position", None): b"12"},
               f"other data of ranks: {ranks.data}")
        for checkpoint in [*read, ranks]:
            check_schema(schema, checkpoint.manifest)
        for wrong in ({"id": "x"}, {"version": 2}, {"step": -1}, {"files": []}, {"loss_scaler": {}}, {"needs": ["x"]}):
            expect(list(complaints(schema, {**ranks.manifest, **wrong}, schema)), f"the schema takes {wrong}")
        check_formats(folder, schema)
        check_layouts(root)
        if HASH:
            check_damage(one)
    print("\n".join(FAILURES) or f"8 manifests and 10 files are as the page says{'' if HASH else '; checksums were not checked: no libxxhash'}")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
