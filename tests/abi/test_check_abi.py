#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check_abi.py: check_abi.py finds what would break a program that was compiled before, and lets pass what would not."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# A version after the recorded one.
LATER = ("status.h", "#define ZOFF_VERSION_PATCH 0", "#define ZOFF_VERSION_PATCH 1")
APPENDED = ("engine.h", "} zoff_engine_opts;", "uint64_t more; } zoff_engine_opts;")
# Whether it breaks a program, and the changes: (header, old text, new text).
CHANGES = (
    (True, ("step.h", "double clip_norm;", "float clip_norm;")),
    (True, ("step.h", "double reserved[2];", "double reserved[1];")),
    (True, ("types.h", "ZOFF_TIER_NVME = 2", "ZOFF_TIER_NVME = 3")),
    (True, ("state.h", "zoff_status zoff_params_pull(zoff_engine *e);", "zoff_status zoff_params_pull(zoff_engine *e, int how);")),
    (False, ("engine.h", "const char *ranks;", "/* a comment */ const char *ranks;")),
    (True, APPENDED),  # not recorded
    (False, LATER, APPENDED),
    (True, LATER, APPENDED, ("engine.h", "void *progress_ctx;", "int64_t progress_ctx;")),
    (True, LATER, ("engine.h", "const char *ranks;", "uint64_t more; const char *ranks;")),
    (True, LATER, ("checkpoint.h", "} zoff_checkpoint_info;", "bool in_padding; } zoff_checkpoint_info;")),
    (False, LATER, ("types.h", "ZOFF_TIER_NVME = 2", "ZOFF_TIER_NVME = 2, ZOFF_TIER_TAPE = 3")),
    (True, LATER, ("types.h", "ZOFF_TIER_NVME = 2", "ZOFF_TIER_TAPE = 2, ZOFF_TIER_NVME = 3")),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cc", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--symbols", required=True)
    parser.add_argument("--against", required=True)
    args = parser.parse_args()
    if not shutil.which("abidiff"):
        return 77
    bad = 0

    def check(include, symbols):
        return subprocess.run([sys.executable, os.path.join(HERE, "check_abi.py"), "--cc", args.cc, "--include", include,
                               "--symbols", symbols, "--against", args.against], capture_output=True, text=True).returncode

    with tempfile.TemporaryDirectory() as folder:
        for breaks, *changes in CHANGES:
            include = os.path.join(folder, "include")
            shutil.rmtree(include, ignore_errors=True)
            shutil.copytree(args.include, include)
            for header, old, new in changes:
                path = os.path.join(include, "zoff", header)
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                if text.count(old) != 1:
                    print(f"{header} no longer has {old!r} once: choose another change")
                    bad += 1
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text.replace(old, new))
            if check(include, args.symbols) != (1 if breaks else 0):
                print(f"{changes} {'passes' if breaks else 'is refused'}")
                bad += 1
        fewer = os.path.join(folder, "fewer.map")
        with open(args.symbols, encoding="utf-8") as file:
            lines = [line for line in file if "zoff_step_retry" not in line]
        with open(fewer, "w", encoding="utf-8") as file:
            file.writelines(lines)
        if check(args.include, fewer) != 1:
            print("a function that is gone passes")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
