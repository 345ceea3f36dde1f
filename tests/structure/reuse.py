# SPDX-License-Identifier: Apache-2.0
"""reuse.py SOURCE: `reuse lint` of the tree, and of a copy with a file whose licence nobody knows, which must fail."""
import os
import subprocess
import sys
import tempfile
import venv


def main(source):
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python, reuse = os.path.join(folder, "bin", "python"), os.path.join(folder, "bin", "reuse")
        if subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "reuse"], check=False).returncode != 0:
            print("skipped: PyPI has no reuse for this machine")
            return 77
        if subprocess.run([reuse, "--root", source, "lint"], check=False).returncode != 0:
            return 1
        copy = os.path.join(folder, "copy")
        os.makedirs(os.path.join(copy, "LICENSES"))
        with open(os.path.join(source, "LICENSE"), encoding="utf-8") as f, \
                open(os.path.join(copy, "LICENSES", "Apache-2.0.txt"), "w", encoding="utf-8") as out:
            out.write(f.read())
        with open(os.path.join(copy, "foreign.c"), "w", encoding="utf-8") as f:
            f.write("int foreign;\n")
        if subprocess.run([reuse, "--root", copy, "lint", "--quiet"], check=False).returncode == 0:
            print("reuse accepts a file without a licence")
            return 1
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
