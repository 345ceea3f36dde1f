# SPDX-License-Identifier: Apache-2.0
"""read_checkpoint.py: reads checkpoints of format 1, written from docs/CHECKPOINT.md alone. It uses Python's standard library, and
libxxhash for checksums. Without it, everything but the checksums is checked."""
import ctypes
import ctypes.util
import json
import os
import re
import struct

KINDS = ("master", "m", "v", "weights", "upper halves of masters")
FORMATS = {1: ("fp32", 4), 2: ("fp16", 2), 3: ("bf16", 2), 4: ("lower half", 2), 7: ("8 bits", 1), 8: ("8 bits", 1)}
ALLOWED = {"master": (1, 4), "m": (1, 3, 7), "v": (1, 3, 8), "weights": (1, 2, 3)}
BLOCK, HEADER = 1024, 64


def find_hash():
    """A function from bytes to XXH3-64, or None."""
    try:
        import xxhash
        return xxhash.xxh3_64_intdigest
    except ImportError:
        path = ctypes.util.find_library("xxhash")
    if not path:
        return None
    function = ctypes.CDLL(path).XXH3_64bits
    function.restype, function.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t)
    return lambda data: function(data, len(data))


HASH = find_hash()


class Bad(Exception):
    pass


def want(holds, words):
    if not holds:
        raise Bad(words)


def check(data, checksum, words):
    want(HASH is None or f"{HASH(data):016x}" == checksum, f"the checksum of {words} differs")


def check_unit(data, checksum, words):
    if HASH is not None:
        blocks = b"".join(struct.pack("<Q", HASH(data[at:at + 65536])) for at in range(0, len(data), 65536))
        want(HASH(blocks) == checksum, f"the checksum of {words} differs")


def join(upper, lower):
    """The number whose bf16 half and lower half are these."""
    bits, = struct.unpack("<I", struct.pack("<f", upper))
    return struct.unpack("<f", struct.pack("<I", (bits + lower) & 0xffffffff))[0]


def unescape(text):
    return re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())


def size_of(form, count):
    return count * FORMATS[form][1] + (HEADER * (-(-count // BLOCK)) if form in (7, 8) else 0)


def block_elements(block, form):
    """Numbers of a block in 8 bits."""
    bound, = struct.unpack("<f", block[:4])
    outliers, places = struct.unpack("<10f", block[4:44]), struct.unpack("<10H", block[44:HEADER])
    used = [place for place in places if place]
    want(used == sorted(set(used)) and not any(places[len(used):]), "the places of outliers do not ascend")
    want(all(place <= len(block) - HEADER and block[HEADER + place - 1] == 0 for place in used), "an outlier has a code")
    if bound == float("inf"):
        return [0.0 if form == 7 else bound] * (len(block) - HEADER)
    largest, exponent = (1.875 * 2 ** 16 - 2, -64) if form == 7 else (1.875 * 2 ** 32, -126)
    while largest * 2.0 ** exponent < bound:
        exponent += 1
    values = []
    for code in block[HEADER:]:
        is_negative, code = (code >> 7, code & 127) if form == 7 else (0, code)
        value, = struct.unpack("<f", struct.pack("<f", (1 + code % 8 / 8) * 2.0 ** (1 + code // 8) - 2))
        value *= 2.0 ** exponent
        values.append(-value if is_negative else value)
    for place, value in zip(used, outliers):
        values[place - 1] = value
    return values


def elements(data, form):
    """Numbers of stored elements."""
    if form == 4:
        return struct.unpack(f"<{len(data) // 2}h", data)
    if form in (7, 8):
        return [x for at in range(0, len(data), BLOCK + HEADER) for x in block_elements(data[at:at + BLOCK + HEADER], form)]
    if form == 2:
        return struct.unpack(f"<{len(data) // 2}e", data)
    if form == 3:
        data = b"".join(b"\0\0" + data[at:at + 2] for at in range(0, len(data), 2))
    return struct.unpack(f"<{len(data) // 4}f", data)


def read_table(table):
    """Regions, checksums, pieces and program data."""
    magic, version, zero, *counts = struct.unpack("<8sIIQQQQ", table[:48])
    want((magic, version, zero) == (b"zofftabl", 1, 0), "a table begins otherwise")
    at, parts = 48, []
    for count, form in zip(counts, ("<QQQQ", "<Q", "<IBBHIIQQQQ", "<256sQII")):
        size = struct.calcsize(form)
        parts.append([struct.unpack(form, table[at + i * size:at + (i + 1) * size]) for i in range(count)])
        at += count * size
    want(at == len(table), "a table has gaps")
    return parts


class File:
    """The file of one rank."""

    def __init__(self, folder, rank, entry, manifest):
        label = manifest["label"] + "." if manifest["label"] else ""
        want(entry["name"] == f"{label}{manifest['id']}.rank-{rank:05}.states", "a file has another name")
        with open(os.path.join(folder, entry["name"]), "rb") as file:
            self.data = data = file.read()
        want(len(data) == entry["bytes"], f"{entry['name']} has another length")
        check(data[:4096], entry["head"], "a head")
        offset = entry["table"]["offset"]
        want(struct.unpack("<8sII24sQ", data[:48]) == (b"zoffpart", 1, rank, manifest["id"].encode() + bytes(8), offset), "a head differs")
        want(not any(data[48:4096]), "a head has no zeros behind it")
        table = data[offset:]
        want(len(table) == entry["table"]["bytes"], "a table has another length")
        check(table, entry["table"]["checksum"], "a table")
        self.regions, checksums, self.pieces, self.items = read_table(table)
        self.check_regions([number for number, in checksums], offset)

    def check_regions(self, checksums, end):
        at, first = 4096, 0
        for offset, size, unit, index in self.regions:
            want((offset, index) == (at, first) and size % 4096 == 0 and unit and unit % 4096 == 0, "a region is elsewhere")
            for begin in range(0, size, unit):
                data = self.data[offset + begin:offset + min(begin + unit, size)]
                check_unit(data, checksums[first], f"the bytes from {offset + begin}")
                first += 1
            at += size
        want(at == end and first == len(checksums), "regions do not fill the file")

    def part(self, region, at, size):
        offset, whole = self.regions[region][:2]
        want(at + size <= whole, "something does not lie in its region")
        return self.data[offset + at:offset + at + size]


class Checkpoint:
    """One engine of a checkpoint: `manifest`, states[(name, kind)] with all slices, data[(name, rank or None)]."""

    def __init__(self, folder, label=""):
        with open(os.path.join(folder, f"{label}.manifest.json" if label else "manifest.json"), "rb") as file:
            text = file.read()
        before, tail = text.rsplit(b',\n  "checksum": "', 1)
        check(before, tail[:16].decode(), "the manifest")
        self.manifest = manifest = json.loads(text)
        want(tail == manifest["checksum"].encode() + b'"\n}\n', "the manifest ends otherwise")
        want((manifest["format"], manifest["version"], manifest["needs"]) == ("zoff checkpoint", 1, []), "a newer version")
        want(re.search(rb'\n  "sequence": \d+', text[:4096]), "the sequence is elsewhere")
        want(manifest["label"] == label, "another label")
        files = [File(folder, rank, entry, manifest) for rank, entry in enumerate(manifest["files"])]
        self.data = {}
        for rank, file in enumerate(files):
            for name, size, region, each in file.items:
                self.data[name.rstrip(b"\0"), rank if each else None] = file.part(region, 0, size) if size else b""
        self.read_states(files)

    def read_states(self, files):
        found = {}
        for file in files:
            for param, kind, form, zero, block, region, slice_, first, count, at in file.pieces:
                want(zero == 0 and block == (BLOCK if form in (7, 8) else 1) and first % 1024 == 0 and at % 64 == 0 and count, "a piece is none")
                data = file.part(region, at, size_of(form, count))
                found.setdefault((param, kind, slice_), []).append((first, form, elements(data, form)))
        self.states = {}
        for index, param in enumerate(self.manifest["params"]):
            size = 1
            for dim in param["dims"]:
                size *= dim
            for kind in param["states"]:
                values, is_split = [], False
                for slice_ in range(param["slices"] if size else 0):
                    for first, form, some in sorted(found.pop((index, KINDS.index(kind), slice_))):
                        want(first == len(values) - slice_ * size, "elements are missing or there twice")
                        want(form in ALLOWED[kind] and (kind != "weights" or FORMATS[form][0] == param["dtype"]), "another format")
                        is_split = form == 4
                        values += some
                    want(len(values) == (slice_ + 1) * size, "elements are missing")
                if is_split:
                    upper = [x for slice_ in range(param["slices"]) for _, form, some in sorted(found.pop((index, 4, slice_))) for x in some]
                    want(len(upper) == len(values), "upper halves are missing")
                    values = [join(a, b) for a, b in zip(upper, values)]
                self.states[unescape(param["name"]), kind] = values
        want(not found, "pieces belong to no state")


class Layout:
    """The description of a state file: `params`, and places[(param, kind, slice, first)] of (chunk, byte, format, count)."""

    def __init__(self, data):
        magic, version, self.rank, self.ranks, zero, _, size, checksum = struct.unpack("<8sIIII16sQQ", data[:56])
        want((magic, version, zero, size) == (b"zofflayt", 2, 0, len(data) - 56), "a description begins otherwise")
        check(data[:48] + bytes(8) + data[56:], f"{checksum:016x}", "a description")
        text, = struct.unpack("<Q", data[56:64])
        self.params = json.loads(data[64:64 + text])
        self.regions, checksums, pieces, items = read_table(data[64 + text:])
        want(not checksums and not items and pieces == sorted(pieces, key=lambda p: (p[5], p[1])), "a table is not that of a description")
        at = 0
        for region in self.regions:
            want(region == (at, region[1], 0, 0) and region[1] % 4096 == 0, "a chunk is elsewhere")
            at += region[1]
        self.places = {(p[0], KINDS[p[1]], p[6], p[7]): (p[5], p[9], p[2], p[8]) for p in pieces}
        want(len(self.places) == len(pieces), "an element is in two pieces")
        for chunk, at, form, count in self.places.values():
            want(at + size_of(form, count) <= self.regions[chunk][1], "a piece does not lie in its chunk")


def latest(folder):
    """The name in `latest`."""
    with open(os.path.join(folder, "latest"), "rb") as file:
        name, checksum = file.read().decode().split("\n")[:2]
    check(name.encode(), checksum, "latest")
    return name
