#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_files.py FOLDER [--add]: the golden files that later versions must read are those in FOLDER/SHA256SUMS, with the same
bytes. --add lists new files."""
import hashlib
import os
import sys

SUMS = "SHA256SUMS"


def stored(folder):
    """Files of stored formats: all in the folders, and JSON beside them."""
    for place, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(place, name), folder)
            if os.sep in path or name.endswith(".json"):
                yield path


def main():
    folder = sys.argv[1]
    listed, faults, new = {}, [], []
    with open(os.path.join(folder, SUMS), encoding="ascii") as file:
        for line in file:
            digest, path = line.rstrip("\n").split("  ", 1)
            if path in listed:
                faults.append(f"{path} is listed twice")
            listed[path] = digest
    for path in stored(folder):
        with open(os.path.join(folder, path), "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if path not in listed:
            new.append(f"{digest}  {path}\n")
        elif listed.pop(path) != digest:
            faults.append(f"{path} has changed. Files of stored formats are never edited, because every later version has to "
                          "read what was written: restore it, and give a new format a new number and a new file")
    faults += [f"{path} is gone. Files of stored formats stay for ever: restore it" for path in listed]
    if new and "--add" in sys.argv:
        with open(os.path.join(folder, SUMS), "a", encoding="ascii") as file:
            file.writelines(new)
    elif new:
        faults += [f"{line.split()[1]} is not in {SUMS}: run check_files.py {folder} --add" for line in new]
    print("\n".join(faults) or f"{SUMS} holds")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
