#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutants.py: checks that the tests notice mistakes. Makes one small change at a time in a copy of the sources, builds the copy, and
runs tests until one fails. First come the tests with the label of --first, then those of the file's room, then the release tier,
then asan and tsan, then a full run.

    tests/mutants/mutants.py --list                      every mutant: name, place, change
    tests/mutants/mutants.py --work /var/tmp/mutants     40 of them, drawn by --seed; continues an earlier run
    tests/mutants/mutants.py --work ... --only NAME...   only these mutants

Writes WORK/results.json after each mutant and prints a table. A mutant that does not compile without a warning is replaced by
another. A failure counts if the test fails again at once, or if it does not end."""
import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import operators  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIERS = ("first", "room", "quick", "default", "full")
PRESETS = {"release": "build", "asan": "build-asan", "tsan": "build-tsan"}
BUILD_SECONDS, TEST_SECONDS = 1800, 120  # limits of a build, and of a test that hangs


def sources(root):
    """The files that have mutants, sorted by name."""
    found = []
    for top in ("src", "cuda"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            found += [os.path.relpath(os.path.join(folder, n), root) for n in names if n.endswith((".c", ".h", ".cu"))]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def all_mutants(root):
    return [m for path in sources(root) for m in operators.mutants_of(path, read(root, path))]


def drawn(mutants, seed):
    """All mutants in the order in which a seed draws them. Operators take turns, so that every draw has some of each."""
    lots = random.Random(seed)
    kinds = collections.OrderedDict((o.__name__, []) for o in operators.OPERATORS)
    for mutant in mutants:
        kinds[mutant.operator].append(mutant)
    for kind in kinds.values():
        lots.shuffle(kind)
    order = []
    while any(kinds.values()):
        order += [kind.pop() for kind in kinds.values() if kind]
    return order


# Rooms whose own tests are part of the engine's tests.
THROUGH_ENGINES = {"model", "lending", "transfer", "agreement"}


def room_of(path):
    """Return the label of the tests that cover a file."""
    room = "cuda" if path.startswith("cuda/") else path.split("/")[1]
    return "engine" if room in THROUGH_ENGINES else room


class Copy:
    """A copy of the sources with its own build folders."""

    def __init__(self, work, jobs):
        self.root, self.jobs = os.path.join(work, "tree"), jobs
        self.log = open(os.path.join(work, "log.txt"), "a", encoding="utf-8")
        # ready: presets that are configured. rooms: for each room whose tests are built, those that fail without a mutant.
        self.ready, self.rooms = set(), {}

    def take(self):
        """Copy the files of the source tree as they are now. Unchanged files keep their time, so that they are not built again."""
        command = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = set(subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")) - {""}
        for top in ("src", "cuda", "tests"):  # a file that was removed must not be compiled
            for folder, _, files in os.walk(os.path.join(self.root, top)):
                for gone in (os.path.join(folder, n) for n in files):
                    if os.path.relpath(gone, self.root) not in names:
                        os.remove(gone)
        for name in sorted(names):
            here, there = os.path.join(ROOT, name), os.path.join(self.root, name)
            if not os.path.isfile(here):
                continue
            with open(here, "rb") as f:
                content = f.read()
            if os.path.isfile(there):
                with open(there, "rb") as f:
                    if f.read() == content:
                        continue
            os.makedirs(os.path.dirname(there), exist_ok=True)
            shutil.copy(here, there)

    def run(self, command, seconds, environment=None):
        """Run a command; return (exit status or None after a timeout, output). Also ends all child processes."""
        self.log.write(f"$ {' '.join(command)}\n")
        with subprocess.Popen(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", start_new_session=True,
                              env={**os.environ, **(environment or {})}) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
                status = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                status = None
            except BaseException:  # this script was asked to end
                os.killpg(process.pid, signal.SIGKILL)
                raise
        self.log.write(output + "\n")
        self.log.flush()
        return status, output

    def configure(self, preset):
        if preset not in self.ready:
            status, output = self.run(["cmake", "--preset", preset, "-DZOFF_TESTS=ON"], 300)
            if status != 0:
                sys.exit(f"cannot configure {preset}:\n{output[-3000:]}")
            self.ready.add(preset)

    def build(self, preset, targets):
        self.configure(preset)
        command = ["cmake", "--build", PRESETS[preset], "--parallel", str(self.jobs), "--target", *(targets or ["check"])]
        return self.run(command, BUILD_SECONDS)

    def targets_of(self, preset, label):
        """Return ninja's targets for the tests with a label: every file in the build folder that their commands name."""
        self.configure(preset)
        folder = os.path.join(self.root, PRESETS[preset])
        command = ["ctest", "--test-dir", folder, "--show-only=json-v1", "-L", f"^{label}$"]
        out = subprocess.run(command, capture_output=True, text=True, check=True)
        command = ["ninja", "-C", folder, "-t", "targets", "all"]
        known = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        known = {line.rsplit(": ", 1)[0] for line in known.splitlines()}
        named = set()
        for test in json.loads(out.stdout)["tests"]:
            words = test.get("command") or []
            if not words and test["name"].endswith("_NOT_BUILT"):
                named.add(test["name"][:-len("_NOT_BUILT")])
            for word in words:
                path = os.path.relpath(word.split("=")[-1], folder) if os.path.isabs(word.split("=")[-1]) else word
                named |= {path} & known
        # Commands of tests do not name libraries, plug-ins, and the stand-ins for CUDA and NCCL.
        named |= {"zoff", "zoff_static", "zoff_cuda", "zoff_nccl", "zoff_mpi", "cuda_on_threads", "nccl_on_threads"} & known
        return sorted(named | ({"gpu_bundle_parts"} & known if label == "cuda" else set()))

    def try_as_they_are(self, room):
        """Before the first mutant of a room, find the failures that are not caused by a mutant."""
        if room not in self.rooms:
            status, output = self.build("release", self.targets_of("release", room))
            if status != 0:
                sys.exit(f"the sources do not build as they are:\n{output[-3000:]}")
            command = ["ctest", "--preset", "release", "--parallel", str(self.jobs), "-L", f"^{room}$"]
            _, output = self.run(command, 3600)
            self.rooms[room] = [test for test, _ in failures(output)]
            if self.rooms[room]:
                print(f"no mutants of {room}, because these tests fail without one: {', '.join(self.rooms[room])}", flush=True)

    def test(self, preset, selection, seconds, full):
        environment = {"ZOFF_TEST_TIMEOUT": str(TEST_SECONDS * (5 if full else 1))}
        environment.update({"ZOFF_TEST_FULL": "1"} if full else {})
        command = ["ctest", "--preset", preset, "--parallel", str(self.jobs), "--stop-on-failure", *selection]
        status, output = self.run(command, seconds, environment)
        failed = failures(output)
        if status is None:
            started = re.findall(r"Start +\d+: (\S+)", output)
            return (started[-1] if started else "?"), "time was over"
        if status == 0 or not failed:
            return None if status == 0 else ("?", f"ctest ended with {status}")
        return failed[0]


def failures(output):
    """[(test, how)] of the failures that ctest reports."""
    return re.findall(r"^\s*\d+ - (\S+) \((.*)\)", output.partition("The following tests FAILED:")[2], re.M)


def hunt(copy, mutant, first, last_tier):
    """Return {"verdict", "tier", "test", ...}: the test that kills the mutant now in the copy, or that none does."""
    room, unsure = room_of(mutant.path), []
    for tier in TIERS[0 if first else 1:TIERS.index(last_tier) + 1]:
        room = first if tier == "first" else room_of(mutant.path)
        for preset in ("release",) if tier in ("first", "room", "quick") else ("asan", "tsan") if tier == "default" else PRESETS:
            has_label = tier in ("first", "room")
            label = ["-L", f"^{room}$"] if has_label else []
            status, output = copy.build(preset, copy.targets_of(preset, room) if has_label else [])
            if status != 0 and has_label:
                return {"verdict": "not compiled", "tier": tier, "words": output[-400:]}
            if status != 0:
                sys.exit(f"{preset} does not build, and the fault is not the mutant's:\n{output[-3000:]}")
            while True:
                left_out = unsure + (copy.rooms[room] if has_label else [])
                excluded = ["-E", "^(" + "|".join(re.escape(t) for t in left_out) + ")$"] if left_out else []
                found = copy.test(preset, label + excluded, 7200 if tier == "full" else 2400, tier == "full")
                if found is None:
                    break
                test, how = found
                again = found if "time" in how.lower() else copy.test(preset, ["-R", f"^{re.escape(test)}$"], 1200, tier == "full")
                if again is not None:
                    return {"verdict": "killed", "tier": tier, "preset": preset, "test": test, "how": how}
                unsure.append(test)  # a test that failed only once, perhaps because of the machine
    return {"verdict": "survived", "tier": last_tier, "unsure": unsure}


def work_on(args, mutants, copy):
    path = os.path.join(args.work, "results.json")
    results = collections.OrderedDict()
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            results.update(json.load(f)["mutants"])
    wanted = mutants if args.only else drawn(mutants, args.seed)
    taken = 0
    for mutant in wanted:
        if taken == args.count and not args.only:
            break
        if mutant.name not in results:
            for label in ([args.first] if args.first else []) + ([room_of(mutant.path)] if args.last_tier != "first" else []):
                copy.try_as_they_are(label)
            source, began = read(copy.root, mutant.path), time.time()
            place = os.path.join(copy.root, mutant.path)
            try:
                with open(place, "w", encoding="utf-8") as f:
                    f.write(mutant.apply(source))
                found = hunt(copy, mutant, args.first, args.last_tier)
            finally:
                with open(place, "w", encoding="utf-8") as f:
                    f.write(source)
            results[mutant.name] = {"place": f"{mutant.path}:{mutant.line}", "operator": mutant.operator, "change": mutant.describe(),
                                    **found, "seconds": round(time.time() - began, 1)}
            with open(path + ".new", "w", encoding="utf-8") as f:
                json.dump({"seed": args.seed, "mutants": results}, f, indent=1)
            os.replace(path + ".new", path)
        one = results[mutant.name]
        taken += one["verdict"] != "not compiled"
        if one["verdict"] != "not compiled":
            print(f"{taken:3} {one['verdict']:8} {one['tier']:7} {one.get('test', ''):60} {one['place']} {one['operator']}: "
                  f"{one['change']}", flush=True)
    done = [results[m.name] for m in wanted if m.name in results and results[m.name]["verdict"] != "not compiled"]
    report(done if args.only else done[:args.count])


def report(found):
    by_tier = collections.Counter(one["tier"] for one in found if one["verdict"] == "killed")
    total = sum(by_tier.values())
    print(f"{total} of {len(found)} were killed: " + ", ".join(f"{by_tier[t]} by {t}" for t in TIERS))
    for one in found:
        if one["verdict"] == "survived":
            print(f"survived: {one['place']} {one['operator']}: {one['change']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every mutant and end")
    parser.add_argument("--work", help="the folder for the copy, its builds and results.json")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40, help="number of mutants that compile (40)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these mutants, by name or part of a name")
    parser.add_argument("--rooms", nargs="+", metavar="ROOM", help="only mutants of these folders of src/")
    parser.add_argument("--first", metavar="LABEL", help="tests to run before those of a room")
    parser.add_argument("--last-tier", choices=TIERS, default="full", help="last tier of tests to run (full)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("interrupted; the same command continues from here"))
    root, copy = ROOT, None
    if args.work and not args.list:
        # The copy stays the same for the whole run, even if the sources change.
        args.work = os.path.abspath(args.work)
        os.makedirs(args.work, exist_ok=True)
        copy = Copy(args.work, args.jobs)
        copy.take()
        root = copy.root
    mutants = all_mutants(root)
    if args.rooms:
        mutants = [m for m in mutants if m.path.split("/")[1] in args.rooms]
    if args.only:
        missing = [part for part in args.only if not any(part in m.name for m in mutants)]
        if missing:
            parser.error(f"no mutant has {', '.join(missing)} in its name; --list prints them")
        mutants = [m for m in mutants if any(part in m.name for part in args.only)]
    if args.list:
        for m in mutants if args.only else drawn(mutants, args.seed):
            print(f"{m.name:70} {m.path}:{m.line} {m.describe()}")
        print(f"{len(mutants)} mutants")
    elif copy:
        work_on(args, mutants, copy)
    else:
        parser.error("--work or --list")


if __name__ == "__main__":
    main()
