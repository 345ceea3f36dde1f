#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_man.py ROOT ZOFF: checks the manual pages.

The pages of section 3 must be those that docs/man/make_pages.py writes from the headers, and name every exported function.
The page zoff(1) must name every verb and option of the command, and mandoc must have no complaint. The output of `zoff help VERB`
must have that verb alone. Exits with 77 (ctest: skipped) without mandoc."""
import glob
import os
import re
import shutil
import subprocess
import sys


def main():
    root, zoff = sys.argv[1:3]
    complaints = []
    made = subprocess.run([sys.executable, os.path.join(root, "docs/man/make_pages.py"), "--check"], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        complaints.append(made.stdout.strip())
    pages = sorted(glob.glob(os.path.join(root, "docs/man/*.[137]")))
    texts = {}
    for path in pages:
        with open(path, encoding="utf-8") as file:
            texts[os.path.basename(path)] = file.read()
    with open(os.path.join(root, "src/libzoff.map"), encoding="utf-8") as file:
        exported = {name.replace("_sized", "") for name in re.findall(r"^ +(zoff_\w+);", file.read(), re.M)}
    named = {name for text in texts.values() for name in re.findall(r"^\.Nm (zoff_\w+)", text, re.M)}
    complaints += [f"no page of docs/man names {name}()" for name in sorted(exported - named)]

    def help_of(*words):
        return subprocess.run([zoff, "help", *words], stdout=subprocess.PIPE, text=True, check=True).stdout

    verbs = re.findall(r"^ {2}zoff (\w+)", help_of(), re.M)
    complaints += [f"docs/man/zoff.1 does not name the verb {verb}" for verb in verbs if f".It Cm {verb}" not in texts["zoff.1"]]
    options = {option for option in re.findall(r"[ \[](--[a-z-]+)", help_of()) if f"Fl {option[1:]}" not in texts["zoff.1"]}
    complaints += [f"docs/man/zoff.1 does not name the option {option}" for option in sorted(options)]
    for verb in dict.fromkeys(verbs):
        told = re.findall(r"^ {2}zoff (\w+)", help_of(verb), re.M)
        complaints += [] if told and set(told) == {verb} else [f"'zoff help {verb}' prints the verbs {told}"]
    if not verbs:
        complaints.append("'zoff help' lists no verb")
    if not shutil.which("mandoc"):
        print("\n".join(complaints) or "skipped: mandoc is not installed")
        return 1 if complaints else 77
    for path in pages:
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", path], stdout=subprocess.PIPE, text=True, check=False)
        complaints += lint.stdout.splitlines()
    print("\n".join(complaints) or f"{len(pages)} pages name {len(exported)} functions and {len(verbs)} verbs")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
