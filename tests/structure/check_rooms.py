#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_rooms.py: checks rules of docs/ARCHITECTURE.md that the compiler cannot check.

Each check is a function that takes a Tree and yields complaints, "file:line: what is wrong and what to do instead". The command
runs all checks and fails if there is a complaint. For each check test_check_rooms.py proves that it can fail."""
import os
import re
import subprocess
import sys

SOURCE = (".c", ".h", ".cc", ".cu")
# A room says what it is in its first lines. Tables and pictures of its files follow.
README_HEAD = 20
README_LIMIT = 100

# In two parts, because tools look for the name with its colon.
LICENCE = "SPDX-License-" "Identifier: Apache-2.0"

# The files that may use what is forbidden elsewhere in src/. Threads are allowed in the update team, the I/O back-end with
# threads, the code that detects a fork(), and the locks of data that several threads share.
GETENV = {"src/base/env.c"}
# They write what src/aio/queue.c has let pass, or make a file shorter.
WRITES = {"src/aio/posix.c", "src/aio/threads.c", "src/aio/bounce.c"}
THREADS = {"src/base/team.c", "src/base/workers.c", "src/base/openmp.c", "src/base/openmp_settings.c", "src/trace/engines.c", "src/aio/threads.c", "src/base/fork.c", "src/comm/book.c", "src/comm/book_priv.h", "src/comm/threads.c", "src/accel/emulated.c", "src/engine/progress_thread.c", "src/checkpoint/checkpoint_priv.h", "src/checkpoint/saver.c", "src/checkpoint/save.c", "src/checkpoint/complete.c"}
INTRINSICS = {"src/base/cpu.c"}  # MXCSR only
INTRINSICS_FOLDER = "src/cpu_adam/simd/"
PRINTS = {"src/base/log.c"}
# These use the public headers except for functions that those lack.
LOOKS_INSIDE = {"bench/comm.c", "bench/cpu_adam_cells.c", "bench/cpu_adam_formats.c", "bench/device.c", "bench/muon.c"}
# The prefix of a room, if it is not the name of its folder.
PREFIX = {"cpu_adam": "adam"}


class Tree:
    """The files of a source tree: those that git would track, or all except builds if there is no git."""

    def __init__(self, root):
        self.root = root
        self._texts = {}
        self._bare = {}
        self.files = sorted(self._list())

    def _list(self):
        if os.path.exists(os.path.join(self.root, ".git")):
            command = ["git", "-C", self.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            try:
                names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
                return [n for n in names if n and os.path.isfile(os.path.join(self.root, n))]
            except (OSError, subprocess.CalledProcessError):
                pass  # git is missing, or may not read this tree
        found = []
        for folder, folders, names in os.walk(self.root):
            relative = os.path.relpath(folder, self.root)
            top = relative == "."
            folders[:] = [f for f in folders if not (f == ".git" or f == "__pycache__" or top and re.match(r"build(-|$)", f))]
            found += [n if top else os.path.join(relative, n) for n in names]
        return found

    def text(self, path):
        if path not in self._texts:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as f:
                self._texts[path] = f.read()
        return self._texts[path]

    def bare(self, path):
        """Return the text without comments and without the contents of string literals; line numbers stay the same."""
        if path not in self._bare:
            self._bare[path] = strip(self.text(path))
        return self._bare[path]

    def under(self, folder, endings=SOURCE):
        return [p for p in self.files if p.startswith(folder) and p.endswith(endings)]

    def rooms(self):
        """{room: set of rooms that it NEEDS}, from the table in cmake/rooms.cmake."""
        table = {}
        for line in self.text("cmake/rooms.cmake").splitlines():
            match = re.match(r"zoff_room\((\w+)([^)]*)\)", line.strip())
            if match:
                needs = re.search(r"NEEDS((?:\s+[a-z]\w*)+)", match.group(2))
                table[match.group(1)] = set(needs.group(1).split()) if needs else set()
        return table


def strip(text):
    def blank(match):
        token = match.group(0)
        if token[0] == '"' or token[0] == "'":
            return token[0] + " " * (len(token) - 2) + token[0]
        return re.sub(r"[^\n]", " ", token)

    # The name in an #include looks like a string literal and must stay.
    token = r'/\*.*?\*/|//[^\n]*|(?m:^[ \t]*#[ \t]*include[^\n]*)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(token, lambda m: m.group(0) if m.group(0).lstrip().startswith("#") else blank(m), text, flags=re.S)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def find(tree, paths, pattern, message):
    for path in paths:
        text = tree.bare(path)
        for match in re.finditer(pattern, text, re.M):
            yield f"{path}:{line_of(text, match.start())}: {match.group(0).strip()}: {message}"


def includes(tree, path):
    text = tree.bare(path)
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, re.M):
        yield line_of(text, match.start()), match.group(1) == "<", match.group(2)


def check_arrows(tree):
    """A room may include only its own headers and the doors of the rooms that it NEEDS."""
    rooms = tree.rooms()
    where = {}
    for path in tree.under("src/", ".h"):
        where.setdefault(os.path.basename(path), []).append(path.split("/")[1])
    for path in tree.under("src/"):
        room = path.split("/")[1]
        if room not in rooms:
            yield f"{path}:1: no room '{room}' in cmake/rooms.cmake"
            continue
        for line, angled, name in includes(tree, path):
            base = os.path.basename(name)
            if angled or base not in where:
                continue
            if ".." in name.split("/"):
                yield f"{path}:{line}: {name}: doors are included by plain name"
            owners = where[base]
            if room in owners:
                continue
            if not rooms[room].intersection(owners):
                yield f"{path}:{line}: {name}: {room} does not NEED {owners[0]} (cmake/rooms.cmake)"
            elif base.endswith("_priv.h"):
                yield f"{path}:{line}: {name}: private to {owners[0]}; use its door"


def check_loops(tree):
    """The needs of rooms must have no cycle."""
    rooms = tree.rooms()
    for start in rooms:
        seen, todo = set(), list(rooms[start])
        while todo:
            room = todo.pop()
            if room == start:
                yield f"cmake/rooms.cmake:1: {start} needs itself in the end"
                break
            if room not in seen:
                seen.add(room)
                todo += rooms.get(room, ())


def check_outside(tree):
    """tools, bench, examples and plug-ins may include the public headers only, and nothing of a room."""
    inside = {os.path.basename(p) for p in tree.under("src/", ".h")}
    for folder in ("tools/", "bench/", "examples/", "plugins/"):
        for path in [p for p in tree.under(folder) if p not in LOOKS_INSIDE]:
            for line, angled, name in includes(tree, path):
                base = os.path.basename(name)
                if not angled and name.startswith("zoff/"):
                    yield f"{path}:{line}: {name}: write <{name}>, as a user's program does"
                elif ".." in name.split("/") or not angled and base in inside and not own_header(tree, path, base):
                    yield f"{path}:{line}: {name}: only <zoff/...> is known outside src/"


def check_cuda(tree):
    """The CUDA plug-in implements interfaces of accel and comm and computes what cpu_adam does. It may include no other
    room, and no other code may include CUDA."""
    seen_by_cuda = {"accel", "comm", "cpu_adam", "base"}
    for path in tree.under("cuda/"):
        for line, angled, name in includes(tree, path):
            base = os.path.basename(name)
            owners = [p.split("/")[1] for p in tree.under("src/", ".h") if os.path.basename(p) == base]
            if not angled and owners and not own_header(tree, path, base) and not seen_by_cuda & set(owners):
                yield f"{path}:{line}: {name}: cuda/ sees the rooms {', '.join(sorted(seen_by_cuda))}"
            elif not angled and base.endswith("_priv.h") and owners:
                yield f"{path}:{line}: {name}: private to {owners[0]}; use its door"
    yield from find(tree, tree.under("src/") + tree.under("include/"), r'#[ \t]*include[ \t]*[<"](?:cuda\w*|nccl|nvtx3/\w+|cufile)\.h[>"]',
                    "CUDA is known in cuda/ alone")


def own_header(tree, path, base):
    top = path.split("/")[0] + "/"
    return any(os.path.basename(p) == base for p in tree.under(top, ".h"))


def check_intrinsics(tree):
    """Vector intrinsics are allowed in one folder only."""
    paths = [p for p in tree.under("src/") if p not in INTRINSICS and not p.startswith(INTRINSICS_FOLDER)]
    yield from find(tree, paths, r"#[ \t]*include[ \t]*<(?:\w*intrin|arm_neon|arm_sve|arm_acle)\.h>|\b_mm\d*_\w+|\b__builtin_ia32_\w+",
                    f"vector intrinsics live in {INTRINSICS_FOLDER}")


def check_getenv(tree):
    paths = [p for p in tree.under("src/") if p not in GETENV]
    yield from find(tree, paths, r"\b(?:secure_getenv|getenv|setenv|putenv|unsetenv|environ)\b",
                    "the environment is read in src/base/env.c, by its table")


def check_writes(tree):
    paths = [p for p in tree.under("src/") if p not in WRITES and "zoff_base_files_fits(" not in tree.bare(p)]
    yield from find(tree, paths, r"\b(?:p?writev?|fallocate|posix_fallocate|ftruncate|copy_file_range)\(",
                    "beyond `ulimit -f` the kernel ends the process: ask zoff_base_files_fits() of src/base/files.h before")


def check_threads(tree):
    # pthread_once is allowed: it starts no thread and guards the one choice of a kernel table.
    paths = [p for p in tree.under("src/") if p not in THREADS]
    yield from find(tree, paths, r"#[ \t]*include[ \t]*<(?:omp|threads)\.h>|#[ \t]*pragma[ \t]+omp\b|\bpthread_(?!once)\w+|\bomp_\w+|\bthrd_\w+",
                    "threads are made in src/base/workers.c, for I/O in src/aio/threads.c, as streams in src/accel/emulated.c, for progress in src/engine/progress_thread.c; "
                    "those of the program meet in src/comm/threads.c")


def check_exits(tree):
    """The library returns a status. It must never end the program, and print only through its log."""
    paths = tree.under("src/") + tree.under("include/") + tree.under("cuda/")
    yield from find(tree, paths, r"\b(?:exit|_exit|_Exit|quick_exit|abort|assert|__builtin_trap|raise)[ \t]*\(|#[ \t]*include[ \t]*<assert\.h>",
                    "the library never ends its program: return a status")
    yield from find(tree, [p for p in paths if p not in PRINTS],
                    r"(?<!format\()\b(?:printf|fprintf|vfprintf|vprintf|puts|putchar|perror|stderr|stdout)\b(?=[ \t]*[(,;)])",
                    "the library prints only through src/base/log.h")


def check_first_line(tree):
    """The first line of a source file names its licence, the second names the file and says what it does."""
    for folder in ("src/", "include/", "tests/", "tools/", "bench/", "examples/", "plugins/", "cuda/"):
        for path in tree.under(folder):
            licence, first = (tree.text(path) + "\n").split("\n", 2)[:2]
            name = re.escape(os.path.basename(path))
            if licence not in (f"/* {LICENCE} */", f"// {LICENCE}"):
                yield f"{path}:1: begins with /* {LICENCE} */"
            elif not re.match(rf"(?:/\*|//) {name}: (?!\*/)\S", first):
                yield f"{path}:2: begins with a comment '{os.path.basename(path)}: what lives here'"


def check_unique_names(tree):
    """Doors are included by plain name, so header names must be unique."""
    seen = {}
    for path in tree.under("src/", ".h"):
        other = seen.setdefault(os.path.basename(path), path)
        if other != path:
            yield f"{path}:1: {os.path.basename(path)} exists already: {other}"


def public_names(tree):
    names = set()
    for path in tree.under("include/", ".h"):
        names.update(re.findall(r"\b(zoff_\w+)\s*\(", tree.bare(path)))
    return names


def check_function_names(tree):
    """The name of a function shows where it is: zoff_<room>_<file>_<verb>, or zoff_<room>_<verb> if the room's door declares
    it."""
    public = public_names(tree)
    for path in tree.under("src/", ".c"):
        room = path.split("/")[1]
        prefix = "zoff_" + PREFIX.get(room, room) + "_"
        stem = os.path.splitext(os.path.basename(path))[0]
        door = f"src/{room}/{room}.h"
        shown = set(re.findall(r"\b(zoff_\w+)\s*\(", tree.bare(door))) if door in tree.files else set()
        text = tree.bare(path)
        for match in re.finditer(r"^(?P<head>[A-Za-z_][\w \t*]*?)\b(?P<name>\w+)\((?P<rest>[^;{}]*)\)\s*\{", text, re.M):
            name, head = match.group("name"), match.group("head").split()
            if "static" in head or "typedef" in head or name in public:
                continue
            address = name.startswith(prefix + stem + "_") or name == prefix + stem
            if not address and not (name in shown and name.startswith(prefix)):
                yield f"{path}:{line_of(text, match.start())}: {name}: internal functions are called {prefix}{stem}_<verb>"


def check_left_open(tree):
    for folder in ("src/", "include/", "tools/", "bench/", "examples/", "tests/", "plugins/", "cuda/"):
        for path in tree.under(folder):
            for number, line in enumerate(tree.text(path).splitlines(), 1):
                if re.search(r"\b(?:TODO|FIXME|XXX)\b", line):
                    yield f"{path}:{number}: left open: {line.strip()}"


def check_machine_paths(tree):
    """No tracked file may contain a path of the machine on which it was written."""
    for path in tree.files:
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            match = re.search(r"(?<![\w.$}])/(?:work|tmp|home|root)/[\w.-]+", line)
            if match and not path.startswith("tests/structure/") and not re.match(r"tests/.*data/", path):
                yield f"{path}:{number}: {match.group(0)}: a path of one machine"


def check_binaries(tree):
    """Every tracked file must be text, but golden files and inputs of fuzz targets. Another binary file was probably added by mistake by a test or a build."""
    for path in tree.files:
        if re.match(r"tests/(golden/\w+/.*[.](states|layout)$|fuzz/corpus/)", path):
            continue
        with open(os.path.join(tree.root, path), "rb") as f:
            if b"\0" in f.read(65536):
                yield f"{path}:1: not a text: git rm it, and see .gitignore"


def check_room_readmes(tree):
    """The README of each room says in a few lines what the room decides."""
    for room in tree.rooms():
        path = f"src/{room}/README.md"
        if path not in tree.files:
            yield f"{path}:1: a room says what it decides, what its door is, and what it never does"
            continue
        text = tree.text(path)
        head = re.split(r"^(?:## |```|\|)", text, maxsplit=1, flags=re.M)[0]
        if head.count("\n") > README_HEAD:
            yield f"{path}:1: {head.count(chr(10))} lines before its first section, table or picture; at most {README_HEAD}"
        if text.count("\n") > README_LIMIT:
            yield f"{path}:1: {text.count(chr(10))} lines; at most {README_LIMIT}"


def check_build_flags(tree):
    for path in tree.files:
        if os.path.basename(path) in ("CMakeLists.txt", "CMakePresets.json", "Makefile") or path.endswith((".cmake", ".in")) or path.startswith(("scripts/", ".ci/")):
            for number, line in enumerate(tree.text(path).splitlines(), 1):
                # The program to which a benchmark compares is compiled as its author compiles it.
                if path == "bench/CMakeLists.txt" and "(step_own_loop.c " in line:
                    continue
                if re.search(r"-?march=native|-mtune=native|-ffast-math|-Ofast|-funsafe-math", line):
                    yield f"{path}:{number}: nothing is compiled for one machine or with other arithmetic: {line.strip()}"


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    tree = Tree(os.path.realpath(root))
    if not tree.under("src/") or not tree.rooms():
        print(f"{root}: no src/ or no rooms in cmake/rooms.cmake: not the source tree")
        return 2
    complaints = 0
    for check in CHECKS:
        for complaint in check(tree):
            print(f"{check.__name__[6:]}: {complaint}")
            complaints += 1
    print(f"{len(CHECKS)} checks over {len(tree.files)} files: {complaints} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
