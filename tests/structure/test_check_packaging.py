#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check_packaging.py ROOT: check_packaging.py passes the tree and finds each fault that is put into a copy of its files."""
import os
import subprocess
import sys
import tempfile

import check_packaging

HERE = os.path.dirname(os.path.abspath(__file__))
# A fault: the file, old and new text, and the complaint.
FAULTS = (
    ("debian/changelog", "zoff (0.1.0-", "zoff (0.1.1-", "debian/changelog has version 0.1.1, CMakeLists.txt 0.1.0"),
    ("include/zoff/status.h", "ZOFF_VERSION_PATCH 0", "ZOFF_VERSION_PATCH 1", "include/zoff/status.h has version 0.1.1"),
    ("CHANGELOG.md", "0.1.0", "0.0.9", 'CHANGELOG.md has no section "## 0.1.0 - DATE"'),
    ("packaging/vcpkg/vcpkg.json", '"version": "0.1.0"', '"version": "0.2.0"', "packaging/vcpkg/vcpkg.json has version 0.2.0"),
    ("packaging/vcpkg/portfile.cmake", "ZOFF_MPI", "ZOFF_MPICH", "vcpkg: ZOFF_MPICH is no option of the build"),
    ("packaging/conda-forge/recipe.yaml", " -DZOFF_NCCL=OFF", "", "conda-forge: does not say whether to build ZOFF_NCCL"),
    ("packaging/spack/package.py", 'depends_on("jansson")', "pass", "Spack: does not depend on jansson"),
    ("packaging/spack/package.py", "nccl@2.18:", "nccl@2.17:", "Spack: asks for nccl 2.17, the build for 2.18"),
    ("cmake/dependencies.cmake", "libzip>=1.6", "libzip>=1.8", "conda-forge: asks for libzip 1.6, the build for 1.8"),
    ("cmake/dependencies.cmake", '"jansson;libjansson-dev"', '"cjson;libcjson-dev"', "differ in ['cjson', 'jansson']"),
    ("debian/zoff-doc.install", "SECURITY.md usr/share/doc/zoff-doc\n", "", "README.md: zoff-doc lacks SECURITY.md"),
    ("debian/zoff-doc.install", "zoff-doc/python", "zoff-doc", "zoff-doc has python/README.md as README.md"),
)


def main():
    root, bad = sys.argv[1], 0
    files = {*check_packaging.doc_files(root), "debian/zoff-doc.install", "CMakeLists.txt", "CHANGELOG.md", "cmake/dependencies.cmake", "include/zoff/status.h", *check_packaging.VERSIONS,
             *(path for paths, _ in check_packaging.RECIPES.values() for path in paths)}
    with tempfile.TemporaryDirectory() as folder:
        texts = {}
        for path in files:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                texts[path] = file.read()

        def write(path, text):
            os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
            with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                file.write(text)

        for path, text in texts.items():
            write(path, text)
        for path, old, new, complaint in FAULTS:
            write(path, texts[path].replace(old, new))
            done = subprocess.run([sys.executable, os.path.join(HERE, "check_packaging.py"), "--undated", folder], stdout=subprocess.PIPE, text=True)
            if old not in texts[path] or done.returncode != 1 or complaint not in done.stdout:
                print(f"{path}: {old!r} -> {new!r} gives\n{done.stdout}not\n{complaint}")
                bad += 1
            write(path, texts[path])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
