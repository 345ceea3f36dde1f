#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mlp.py --root ROOT [--prefix PREFIX]: each patch of examples/mlp applies, is as short as promised, and trains as the stock trainer does.

Losses of the stock trainer and of zoff agree to the last digit or two, because both round. Those of
zoff's tiers, of hidden steps, and of runs that go on after a kill or from a checkpoint are the same text. Ranks need mpirun, and are left out without."""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from run_page import environment

STEPS = 40
MOST_LINES = {"offload": 7, "ranks": 10, "persist": 9, "checkpoint": 10, "hidden": 12}
CLOSE = 2e-6  # of losses from 0.05 to 0.5


class Case:
    """The folder with the programs, and what went wrong."""

    def __init__(self, prefix, source, folder):
        self.env, self.source, self.folder, self.wrong = environment(prefix), source, folder, []

    def shell(self, command):
        done = subprocess.run(["bash", "-c", f"set -euo pipefail; cd {self.folder}; {command}"], env=self.env, capture_output=True, text=True)
        if done.returncode:
            self.wrong.append(f"{command}: exit status {done.returncode}: {done.stdout[-300:]}{done.stderr[-2000:]}")
        return done.stdout

    def build(self, patch, change="true"):
        """Compile the stock trainer, or the patched one."""
        self.shell(f"cp {self.source}/mlp.c {patch}.c; {change}")
        if patch != "stock":
            said = self.shell(f"patch --fuzz=0 {patch}.c {self.source}/{patch}.diff")
            if "offset" in said:  # GNU patch tells the reader so, who then asks whether something is wrong
                self.wrong.append(f"{patch}.diff is of another version of mlp.c: {said}")
            added = [line for line in open(f"{self.source}/{patch}.diff", encoding="utf-8") if re.match(r"\+(?!\+\+ )", line)]
            if len(added) > MOST_LINES[patch]:
                self.wrong.append(f"{patch}.diff adds {len(added)} lines, more than {MOST_LINES[patch]}")
        self.shell(f"cc -O2 -Wall -Wextra -Werror {patch}.c -o {patch} $(pkg-config --cflags --libs zoff) -lm")

    def run(self, command):
        return losses(self.shell(command))

    def same(self, what, had, want):
        if had != want or not had:
            first = next((step for step in want if had.get(step) != want[step]), None)
            self.wrong.append(f"{what}: {len(had)} steps, and the loss of step {first} is {had.get(first)}, not {want.get(first)}")

    def close(self, what, had, want):
        far = [step for step in want if step not in had or abs(float(had[step]) - float(want[step])) > CLOSE]
        if far or len(want) != STEPS:
            self.wrong.append(f"{what}: step {far[:1]}: {had.get(far[0]) if far else ''} beside {want.get(far[0]) if far else ''}")


def losses(text):
    """{step: loss} of each line; a step that has two lines must have equal ones."""
    found = {}
    for step, loss in re.findall(r"step (\d+): loss (\S+)", text):
        if found.setdefault(int(step), loss) != loss:
            found[int(step)] = f"{found[int(step)]} and {loss}"
    return found


def killed(case):
    """The lines of a run that kill -9 ends behind step 15."""
    child = subprocess.Popen(["stdbuf", "-oL", "./persist", "1000000", "persist.json"], cwd=case.folder, env=case.env, stdout=subprocess.PIPE, text=True)
    lines = []
    for line in child.stdout:
        lines.append(line)
        if line.startswith("step 15:"):
            child.send_signal(signal.SIGKILL)
            break
    lines += list(child.stdout)
    child.wait()
    return [line for line in lines if int(line.split()[1][:-1]) <= STEPS]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prefix")
    parser.add_argument("--root", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        case = Case(args.prefix, os.path.join(os.path.abspath(args.root), "examples/mlp"), folder)
        case.shell(f"cp {case.source}/*.json .; mkdir states")
        case.build("stock")
        stock = case.run(f"./stock {STEPS}")
        for patch in MOST_LINES:
            case.build(patch)
        dram = case.run(f"./offload {STEPS} dram.json")
        case.close("states in DRAM beside the stock trainer", dram, stock)
        case.same("states in files", case.run(f"./offload {STEPS} nvme.json"), dram)
        for config in ("dram.json", "nvme.json"):
            case.same(f"hidden steps, {config}", case.run(f"./hidden {STEPS} {config}"), dram)
        case.run(f"./checkpoint 25 dram.json; test $(ls saves | grep -c step-) = 2")
        case.same("from a checkpoint, in files", case.run(f"./checkpoint {STEPS} nvme.json saves"), {t: dram[t] for t in dram if t > 20})
        before = killed(case)
        done = case.shell(f"./persist {STEPS} persist.json")
        case.same("after kill -9", losses("".join(before) + done), dram)
        if not 15 <= len(before) or len(losses(done)) == STEPS:
            case.wrong.append(f"the killed run took {len(before)} steps, and the next one {len(losses(done))}")
        if shutil.which("mpirun"):
            case.build("stock", change="sed -i 's/BATCH = 32/BATCH = 64/' stock.c")
            lines = re.findall(r"step (\d+): loss (\S+)", case.shell(f"mpirun -n 2 ./ranks {STEPS} dram.json"))
            mean = {t: str(sum(float(loss) for step, loss in lines if int(step) == t) / 2) for t in range(1, STEPS + 1)}
            case.close("two ranks beside the stock trainer with their batch", mean, case.run(f"./stock {STEPS}"))
            if len(lines) != 2 * STEPS:
                case.wrong.append(f"two ranks printed {len(lines)} losses")
        else:
            print("not tried: ranks, because mpirun is missing")
    for words in case.wrong:
        print("FAILED:", words)
    print("" if case.wrong else f"{len(MOST_LINES)} patches train as the stock trainer does")
    sys.exit(1 if case.wrong else 0)


main()
