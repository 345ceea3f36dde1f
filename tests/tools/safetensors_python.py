#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""safetensors_python.py: compares the zoff command with the reference implementation of safetensors, bit by bit and both ways.

safetensors_python.py ZOFF VENV_DIR

The packages safetensors and numpy are taken from the Python that runs this script, otherwise from VENV_DIR. If neither has them,
they are installed once from PyPI into VENV_DIR. Exits with 77 and a reason if all of that fails."""
import ctypes
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

SKIP = 77
INSTALL_SECONDS = 120
TYPES = {"F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2)}


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIP)


def install(venv):
    """Return the Python of VENV_DIR, with safetensors installed in it."""
    python = os.path.join(venv, "bin", "python")
    if os.path.exists(python) and subprocess.run([python, "-c", "import safetensors.numpy"], capture_output=True, check=False).returncode == 0:
        return python
    for command in ([sys.executable, "-m", "venv", "--clear", venv],
                    [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--timeout", "10",
                     "--retries", "1", "safetensors", "numpy"]):
        try:
            done = subprocess.run(command, timeout=INSTALL_SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        except subprocess.TimeoutExpired:
            skip(f"safetensors is not installed, and installing it took more than {INSTALL_SECONDS} s")
        if done.returncode:
            lines = [line for line in done.stdout.strip().splitlines() if line.strip()] or ["no output"]
            skip(f"safetensors is not installed, and installing it failed: {lines[-1]}")
    return python


def random_tensors(seed):
    """{name: (type, shape, bytes)}: every pattern of bits but those of NaN, which a conversion may change."""
    chance = random.Random(seed)
    tensors = {}
    for i, (kind, shape) in enumerate([("F32", [33, 7]), ("BF16", [5]), ("F16", [2, 3, 4]), ("F32", []), ("BF16", [0, 3]), ("F16", [1]),
                                       ("BF16", [257, 129]), ("F32", [11])]):
        count = 1
        for dim in shape:
            count *= dim
        exponent = {"F32": 0x7F800000, "BF16": 0x7F80, "F16": 0x7C00}[kind]
        bits = []
        while len(bits) < count:
            number = chance.getrandbits(8 * TYPES[kind][1])
            if number & exponent != exponent:
                bits.append(number)
        code = "<%d%s" % (count, "I" if kind == "F32" else "H")
        tensors[f"layer.{i}.weight \u00e9\"\\"] = (kind, shape, struct.pack(code, *bits))
    return tensors


def write_by_reference(safetensors, path, tensors, metadata):
    kept, given = [], {}
    for name, (kind, shape, data) in tensors.items():
        if hasattr(safetensors, "TensorSpec"):
            kept.append(ctypes.create_string_buffer(data, max(1, len(data))))
            given[name] = safetensors.TensorSpec(dtype=TYPES[kind][0], shape=shape, data_ptr=ctypes.addressof(kept[-1]), data_len=len(data))
        else:  # before version 0.8
            given[name] = {"dtype": TYPES[kind][0], "shape": shape, "data": data}
    safetensors.serialize_file(given, path, metadata)


def read_by_reference(safetensors, path):
    with open(path, "rb") as file:
        found = safetensors.deserialize(file.read())
    return {name: (entry["dtype"], list(entry["shape"]), bytes(entry["data"])) for name, entry in found}


def map_by_reference(safetensors, path):
    """Map a file into memory, as trainers do: its metadata, and the bytes of the tensors that numpy has a type for."""
    with safetensors.safe_open(path, framework="numpy") as file:
        names = [name for name in file.keys() if file.get_slice(name).get_dtype() != "BF16"]
        return file.metadata(), {name: file.get_tensor(name).tobytes() for name in names}


def zoff(tool, *arguments):
    done = subprocess.run([tool, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        print("FAILED:", arguments, done.stdout)
        sys.exit(1)


def expect(wrong, words, want, have):
    if want != have:
        wrong.append(f"{words}: {str(have)[:200]} is not {str(want)[:200]}")


def compare_one_file(safetensors, tool, folder, wrong):
    """A file of the reference becomes a checkpoint, and comes back in one file that the reference reads."""
    source, to = os.path.join(folder, "source.safetensors"), os.path.join(folder, "one")
    tensors = random_tensors(1)
    owner = next(iter(tensors))
    write_by_reference(safetensors, source, tensors, {"format": "pt", "tied": owner})
    zoff(tool, "import", "safetensors", source, "-o", os.path.join(folder, "checkpoints"))
    zoff(tool, "export", os.path.join(folder, "checkpoints"), "-o", to)
    path = os.path.join(to, "model.safetensors")
    have = read_by_reference(safetensors, path)
    tensors = {name: (kind, shape or [1], data) for name, (kind, shape, data) in tensors.items()}  # a number becomes a list of one
    expect(wrong, "names of one file", sorted(tensors), sorted(have))
    for name, tensor in tensors.items():
        expect(wrong, name, tensor, have.get(name))
    metadata, mapped = map_by_reference(safetensors, path)
    expect(wrong, "tensors of a mapped file", {name: data for name, (kind, _, data) in tensors.items() if kind != "BF16"}, mapped)
    expect(wrong, "the tied name", owner, metadata.get("tied"))
    expect(wrong, "the format", "pt", metadata.get("format"))
    return tensors


def compare_shards(safetensors, tool, folder, tensors, wrong):
    """Compare an export of several files, whose index names each tensor once."""
    to = os.path.join(folder, "shards")
    zoff(tool, "export", os.path.join(folder, "checkpoints"), "-o", to, "--max-shard-size", "1KB")
    with open(os.path.join(to, "model.safetensors.index.json"), encoding="utf-8") as file:
        index = json.load(file)
    have, places = {}, {}
    for shard in sorted(set(index["weight_map"].values())):
        for name, tensor in read_by_reference(safetensors, os.path.join(to, shard)).items():
            have[name], places[name] = tensor, shard
    expect(wrong, "tensors of all files", tensors, have)
    expect(wrong, "the map of the index", index["weight_map"], places)
    expect(wrong, "total_size", sum(len(data) for _, _, data in tensors.values()), index["metadata"]["total_size"])
    if len(set(places.values())) < 3:
        wrong.append("there are too few files to test an index")
    zoff(tool, "import", "safetensors", to, "-o", os.path.join(folder, "again"))
    zoff(tool, "export", os.path.join(folder, "again"), "-o", os.path.join(folder, "again-export"))
    expect(wrong, "after another round", tensors, read_by_reference(safetensors, os.path.join(folder, "again-export", "model.safetensors")))


def main():
    tool, venv = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    try:
        import safetensors.numpy
    except ImportError:
        if os.environ.get("ZOFF_TEST_SAFETENSORS_VENV") == venv:
            skip("safetensors does not import from its own virtual environment")
        python = install(venv)
        os.environ["ZOFF_TEST_SAFETENSORS_VENV"] = venv
        os.execv(python, [python, os.path.abspath(__file__), tool, venv])
    print("safetensors", safetensors.__version__)
    wrong = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        tensors = compare_one_file(safetensors, tool, folder, wrong)
        compare_shards(safetensors, tool, folder, tensors, wrong)
    for words in wrong:
        print("FAILED:", words)
    print(f"{len(tensors)} tensors, compared both ways")
    sys.exit(1 if wrong else 0)


main()
