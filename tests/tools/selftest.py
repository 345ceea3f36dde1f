#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""selftest.py ZOFF BROKEN: `zoff selftest` agrees with this build, and tells where libzoff is BROKEN, whose scalar kernels are wrong."""
import os
import re
import subprocess
import sys
import tempfile


def run(tool, folder, **env):
    """(exit status, {(part, name): verdict}, stderr)"""
    done = subprocess.run([tool, "selftest", folder], env={**os.environ, **env}, capture_output=True, text=True, check=False)
    rows = re.findall(r"^(kernels|engine) +(\S.*?) +(same|DIFFERS|-) ", done.stdout, re.M)
    return done.returncode, {(part, name): verdict for part, name, verdict in rows}, done.stderr


def main():
    tool, broken = (os.path.abspath(path) for path in sys.argv[1:])
    wrong = []

    def expect(fits, words):
        if not fits:
            wrong.append(words)

    with tempfile.TemporaryDirectory(dir=".") as folder:
        status, rows, err = run(tool, folder)
        here = [name for (part, name), verdict in rows.items() if part == "kernels" and verdict != "-"]
        engine = [name for part, name in rows if part == "engine"]
        expect(status == 0 and err == "", f"exit status {status}: {err}")
        expect("scalar" in here and len(engine) >= 12 and "DIFFERS" not in rows.values(), f"{rows}")
        expect(os.listdir(folder) == [], f"left behind: {os.listdir(folder)}")
        status, rows, err = run(tool, folder, LD_PRELOAD=broken)
        differs = {row for row, verdict in rows.items() if verdict == "DIFFERS"}
        expect(status == 1 and "differ from the reference: do not train with this build" in err, f"broken: exit status {status}: {err}")
        expect(("kernels", "scalar") in differs and (differs == {("kernels", "scalar")} or here == ["scalar"]), f"broken: {rows}")
        status, rows, err = run(tool, folder, LD_PRELOAD=broken, ZOFF_ISA="scalar")
        expect(status == 1 and all(rows[("engine", name)] == "DIFFERS" for name in engine), f"broken, in engines: {rows}")
        status, rows, err = run(tool, folder + "/absent")
        expect(status == 1 and "cannot make the folder" in err and "absent/zoff-" in err, f"exit status {status}: {err}")
    for words in wrong:
        print("FAILED:", words)
    sys.exit(1 if wrong else 0)


main()
