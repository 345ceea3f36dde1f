#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tool_process.py: the zoff command as a process: its peak memory does not grow with the tensors, and signals end it cleanly.

tool_process.py ZOFF [--sanitized]

Makes a file with one large tensor of zeros and many empty ones, imports it, and exports the checkpoint. --sanitized leaves out the memory, which a
sanitizer multiplies."""
import glob
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

ELEMENTS = 64 << 20     # 128 MiB in bf16, 256 MiB of masters
PEAK_BYTES = 64 << 20   # memory of a process that handles it: a few blocks, and the program itself
TRIES = 10
RECORDS = 4000          # records of a hostile file, and its tensors


def write_source(path):
    entries = {f"empty{i}": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]} for i in range(100)}
    entries["w"] = {"dtype": "BF16", "shape": [ELEMENTS], "data_offsets": [0, 2 * ELEMENTS]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2 * ELEMENTS)


def write_hostile(path):
    """Thousands of records, each of a parameter with more slices than a file can have."""
    header = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(RECORDS)}
    records = [{"name": f"p{i}", "tied_to": "t0", "slices": 1 << 62, "slice_name": f"p{i}.{{}}"} for i in range(RECORDS)]
    header["__metadata__"] = {"zoff.params": json.dumps(records)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)


def peak_of(command, expected=0):
    """Run a command; the peak of its memory in bytes, or None after another exit status than expected."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if expected else None)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024 if child.returncode == expected else None


def check_hostile(tool, source, to, sanitized, wrong):
    """The memory of an import is bounded by the size of its file."""
    write_hostile(source)
    peak = peak_of([tool, "import", "safetensors", source, "-o", to], expected=1)
    print(f"import of a hostile file: peak memory {(peak or 0) / (1 << 20):.1f} MiB")
    if peak is None or (peak > PEAK_BYTES and not sanitized):
        wrong.append(f"the import of a hostile file took {peak} bytes of memory, at most {PEAK_BYTES} are allowed")


def signaled(command, appears, number):
    """Run a command, and send a signal once a file appears; (exit status, stderr)."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while child.poll() is None and not glob.glob(appears):
        time.sleep(0.0005)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    return child.returncode, err


def remove(path):
    subprocess.run(["rm", "-rf", path], check=True)


def check_signal(command, to, appears, number, words, wrong):
    """One of several tries must be in time: a process that ends before its signal proves nothing."""
    for _ in range(TRIES):
        remove(to)
        status, err = signaled(command, appears, number)
        if status != 0:
            break
    if status != 1 or words not in err:
        wrong.append(f"{command[1]} after signal {number}: exit status {status}: {err}")
    left = [os.path.join(folder, name) for folder, _, names in os.walk(to) for name in names]
    if left:
        wrong.append(f"{command[1]} after signal {number} has left {left}")


def check_full(commands, wrong):
    """Output that cannot be written is an error with its reason."""
    for command in commands:
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 1 or "cannot write the output: No space left on device" not in done.stderr:
            wrong.append(f"{command[1:]} to a full disk: exit status {done.returncode}: {done.stderr}")


def check_kill(command, to, appears, wrong):
    """A killed export leaves no file under a final name. The next one overwrites the file that is left."""
    for _ in range(TRIES):
        remove(to)
        status, _ = signaled(command, appears, signal.SIGKILL)
        if status != 0:
            break
    if status != -signal.SIGKILL or os.listdir(to) != ["model.safetensors.zoff-part"]:
        wrong.append(f"a killed export: exit status {status}, {os.listdir(to)}")
    after = subprocess.run(command, capture_output=True, text=True, check=False)
    if after.returncode or not after.stderr.startswith(f"note: {to}/model.safetensors.zoff-part is removed") or os.listdir(to) != ["model.safetensors"]:
        wrong.append(f"an export after a killed one: {after.stderr}, or it left {os.listdir(to)}")


def main():
    tool, sanitized = os.path.abspath(sys.argv[1]), "--sanitized" in sys.argv
    wrong = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        folder = os.path.abspath(folder)
        source, checkpoints, to = (os.path.join(folder, name) for name in ("source.safetensors", "checkpoints", "export"))
        write_source(source)
        imports, exports = [tool, "import", "safetensors", source, "-o", checkpoints], [tool, "export", checkpoints, "-o", to]
        check_signal(imports, checkpoints, checkpoints + "/.step-*/*.states", signal.SIGINT, "import was canceled", wrong)
        remove(checkpoints)
        stats = [tool, "checkpoint", "inspect", checkpoints, "--stats"]
        for command in (imports, exports, stats):
            peak = peak_of(command)
            print(f"{command[1]}: peak memory {(peak or 0) / (1 << 20):.1f} MiB")
            if peak is None or (peak > PEAK_BYTES and not sanitized):
                wrong.append(f"{command[1]} took {peak} bytes of memory, at most {PEAK_BYTES} are allowed")
        if os.path.getsize(to + "/model.safetensors") < 2 * ELEMENTS:
            wrong.append("the export is too small")
        for number in (signal.SIGINT, signal.SIGTERM):
            check_signal(exports, to, to + "/*.zoff-part", number, "export was canceled; its files are removed", wrong)
        inspect = [tool, "checkpoint", "inspect", checkpoints]
        check_full([inspect, inspect + ["--manifest"], inspect + ["--stats", "--json"], [tool, "checkpoint", "list", checkpoints], [tool, "checkpoint", "verify", checkpoints], [tool, "info"], [tool, "reference"], [tool, "schema"], [tool, "api"]], wrong)
        check_hostile(tool, os.path.join(folder, "hostile.safetensors"), checkpoints + "-hostile", sanitized, wrong)
        check_kill(exports, to, to + "/*.zoff-part", wrong)
    for words in wrong:
        print("FAILED:", words)
    sys.exit(1 if wrong else 0)


main()
