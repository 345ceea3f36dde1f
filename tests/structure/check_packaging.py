#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_packaging.py [--undated] ROOT: everything that is published has one version, and recipes fit the build.

The version is that of project() in CMakeLists.txt. Each file of VERSIONS repeats it, and CHANGELOG.md has a section for it, with
a date unless --undated is given. Each recipe names the libraries and versions that cmake/dependencies.cmake asks for, and sets
options that exist, each part among them. Pages of the package zoff-doc lead to files of that package, or to sources."""
import glob
import os
import re
import sys

# Each pattern finds the version once.
VERSIONS = {
    "pyproject.toml": r'^version = "(.*)"$',
    "python/src/zoff/_api.py": r'^VERSION = "(.*)"$',
    "share/zoff/api.json": r'^ "version": "(.*)",$',
    "bindings/rust/zoff-sys/Cargo.toml": r'^version = "(.*)"$',
    "CITATION.cff": r"^version: (.*)$",
    "debian/changelog": r"\Azoff \((.*)-\d+\)",
    "packaging/spack/package.py": r'version\("(.*)", sha256',
    "packaging/conda-forge/recipe.yaml": r'^  version: "(.*)"$',
    "packaging/vcpkg/vcpkg.json": r'^  "version": "(.*)",$',
}
# A recipe: its files, and how it names a dependency.
RECIPES = {
    "Debian": (("debian/control", "debian/rules"), r"\b{}(?:,| \(>= {}\))"),
    "Spack": (("packaging/spack/package.py",), r'depends_on\("{}(?:@{}:)?"'),
    "conda-forge": (("packaging/conda-forge/recipe.yaml",), r"^ +- {}(?: >={})?$"),
    "vcpkg": (("packaging/vcpkg/vcpkg.json", "packaging/vcpkg/portfile.cmake"), r'"{}"'),
}
# A dependency as dependencies.cmake names it, and as the recipes do; None: the recipe goes without.
NAMES = {
    "liburing": ("liburing-dev", "liburing", "liburing", "liburing"),
    "numa": ("libnuma-dev", "numactl", "libnuma", "numactl"),
    "jansson": ("libjansson-dev", "jansson", "jansson", "jansson"),
    "libxxhash": ("libxxhash-dev", "xxhash", "xxhash", "xxhash"),
    "libzip": ("libzip-dev", "libzip", "libzip", "libzip"),
    "MPI": ("mpi-default-dev", "mpi", "openmpi", "mpi"),
    "CUDA": ("nvidia-cuda-toolkit", "cuda", None, "cuda"),
    "NCCL": ("libnccl-dev", "nccl", None, "nccl"),
    "cmake": ("cmake", "cmake", "cmake", None),
}
# Links from the pages of zoff-doc that need a clone.
SOURCES = ("bench/", "src/", "tests/")


def doc_files(root):
    """{file of the repository: where zoff-doc has it, below its folder}."""
    found = {}
    with open(os.path.join(root, "debian/zoff-doc.install"), encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip()]
    for pattern, to in rows:
        for path in glob.glob(pattern, root_dir=root):
            paths = [path, *(os.path.join(path, name) for name in glob.glob("**", root_dir=os.path.join(root, path), recursive=True))]
            for one in (name for name in paths if os.path.isfile(os.path.join(root, name))):
                found[one] = os.path.relpath(os.path.join(to, os.path.relpath(one, os.path.dirname(path))), "usr/share/doc/zoff-doc")
    return found


class Tree:
    def __init__(self, root):
        self.root, self.complaints = root, []

    def read(self, path):
        try:
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            self.complaints.append(f"{path} is missing")
            return ""

    def versions(self, undated):
        version = re.search(r"^project\(zoff VERSION ([\d.]+) ", self.read("CMakeLists.txt"), re.M).group(1)
        found = {path: re.search(pattern, self.read(path), re.M) for path, pattern in VERSIONS.items()}
        found = {path: match and match.group(1) for path, match in found.items()}
        found["include/zoff/status.h"] = ".".join(re.findall(r"^#define ZOFF_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$",
                                                             self.read("include/zoff/status.h"), re.M))
        for path, other in sorted(found.items()):
            if other != version:
                self.complaints.append(f"{path} has version {other}, CMakeLists.txt {version}")
        if not re.search(rf"^## (Unreleased \()?{re.escape(version)}\b" if undated else rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$",
                         self.read("CHANGELOG.md"), re.M):
            self.complaints.append(f'CHANGELOG.md has no section "## {version} - DATE"')

    def recipes(self):
        text = self.read("cmake/dependencies.cmake")
        parts = set(re.findall(r'^zoff_part\((\w+) "', text, re.M))
        options = parts | set(re.findall(r"^set\(ZOFF_(\w+) .*CACHE", self.read("CMakeLists.txt"), re.M))
        needs = dict.fromkeys(re.findall(r'"(\w+);lib[\w-]+-dev"', text), "")
        needs["libzip"] = re.search(r"libzip>=([\d.]+)", text).group(1)
        needs["MPI"] = re.search(r"MPI_C_VERSION VERSION_LESS ([\d.]+)", text).group(1).removesuffix(".0")
        needs["CUDA"] = re.search(r"find_package\(CUDAToolkit ([\d.]+)", text).group(1)
        needs["NCCL"] = re.search(r"find_package\(NCCL ([\d.]+)", text).group(1)
        needs["cmake"] = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", self.read("CMakeLists.txt")).group(1)
        if set(needs) != set(NAMES):
            self.complaints.append(f"dependencies.cmake and NAMES of check_packaging.py differ in {sorted(set(needs) ^ set(NAMES))}")
        for column, (recipe, (paths, pattern)) in enumerate(RECIPES.items()):
            all_text = "".join(self.read(path) for path in paths)
            used = set(re.findall(r"ZOFF_([A-Z]+)\b", all_text))
            for option in sorted(used - options):
                self.complaints.append(f"{recipe}: ZOFF_{option} is no option of the build")
            for option in sorted(parts - used):
                self.complaints.append(f"{recipe}: does not say whether to build ZOFF_{option}")
            for need in NAMES:
                name = NAMES[need][column]
                found = name and re.search(pattern.format(re.escape(name), r"([\d.]+)"), all_text, re.M)
                if name and not found:
                    self.complaints.append(f"{recipe}: does not depend on {name}")
                elif found and any(found.groups()) and found.group(1) != needs.get(need):
                    self.complaints.append(f"{recipe}: asks for {name} {found.group(1)}, the build for {needs.get(need) or 'any version'}")

    def pages(self):
        files = doc_files(self.root)
        self.complaints += [f"zoff-doc has {path} as {to}, so links to it lead nowhere" for path, to in files.items() if path != to]
        for page in sorted(path for path in files if path.endswith(".md")):
            for link in re.findall(r"\]\(([^)#\s]+)", self.read(page)):
                path = os.path.normpath(os.path.join(os.path.dirname(page), link))
                if not re.match("[a-z]+:", link) and path not in files and not path.startswith(SOURCES):
                    self.complaints.append(f"{page}: zoff-doc lacks {path}")


def main():
    undated = "--undated" in sys.argv
    tree = Tree([word for word in sys.argv[1:] if word != "--undated"][0])
    tree.versions(undated)
    tree.recipes()
    tree.pages()
    print("\n".join(tree.complaints) or "one version, recipes that fit the build, and pages that lead somewhere")
    return 1 if tree.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
