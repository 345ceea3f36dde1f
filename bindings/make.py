#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make.py [--check] [--cc CC]: writes share/zoff/api.json from the public headers, and the bindings that follow from it.

--check compares the files with what would be written, and exits with 1 if they differ."""
import argparse
import json
import os
import sys

import to_fortran
import to_python
import to_rust
from describe import ROOT, Unknown, describe
from written import write

PROGRAM = "python3 bindings/make.py"


def as_json(value, indent=""):
    """JSON with one line for each thing that has a name, so that a change of the API is a change of few lines."""
    if isinstance(value, (dict, list)) and any(isinstance(part, (dict, list)) and part for part in (value.values() if isinstance(value, dict) else value)):
        more = indent + " "
        parts = [f"{more}{json.dumps(key) + ': ' if key else ''}{as_json(part, more)}"
                 for key, part in (value.items() if isinstance(value, dict) else ((None, part) for part in value))]
        left, right = "{}" if isinstance(value, dict) else "[]"
        return left + "\n" + ",\n".join(parts) + f"\n{indent}{right}"
    return json.dumps(value, ensure_ascii=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"))
    try:
        api = describe(parser.parse_args().cc)
    except Unknown as error:
        print(error)
        return 1
    written = {"share/zoff/api.json": as_json(api) + "\n", "bindings/fortran/zoff.f90": to_fortran.module(api),
               "bindings/fortran/layout.f90": to_fortran.layout(api), "bindings/rust/zoff-sys/src/lib.rs": to_rust.declarations(api),
               "bindings/rust/zoff-sys/tests/layout.rs": to_rust.layout(api), "python/src/zoff/_api.py": to_python.declarations(api)}
    stale = [path for path, text in written.items() if write(os.path.join(ROOT, path), text, "include/zoff", PROGRAM)]
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
