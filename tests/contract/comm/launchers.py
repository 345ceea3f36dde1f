#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""launchers.py PROGRAM: starts two ranks with each launcher of this machine, also with those of another MPI than the one
that the plug-in was compiled with. The ranks must join, or say that the launcher has started two."""
import re
import shutil
import subprocess
import sys

LAUNCHERS = {"MPICH": ["mpiexec.hydra", "mpiexec.mpich"], "Open MPI": ["mpirun.openmpi", "orterun"]}


def run(launcher, program, word):
    """Whether the ranks have joined; exits with a message if they trained apart."""
    done = subprocess.run([launcher, "-n", "2", program, word, "2"], capture_output=True, text=True, timeout=120,
                          check=False)
    words = done.stdout + done.stderr
    joined = len(re.findall(r"rank [01] of 2: 2\b", words))
    refused = len(re.findall(r"plugin_rank: open: .* has started 2 \(", words))
    if "of 1:" in words or joined + refused == 0 or (joined and (refused or done.returncode)):
        sys.exit(f'{launcher} -n 2, communicator "{word}": exit {done.returncode}\n{words}')
    print(f'{launcher}, "{word}": {joined} ranks joined, {refused} were refused')
    return joined == 2


def main():
    found = {name: next((p for p in map(shutil.which, programs) if p), None) for name, programs in LAUNCHERS.items()}
    outcomes = [run(launcher, sys.argv[1], word) for launcher in found.values() if launcher for word in ("auto", "mpi")]
    missing = [name for name, launcher in found.items() if not launcher]
    if missing:
        sys.exit(f"skipped: this machine has no launcher of {' and '.join(missing)} (apt-get install mpich openmpi-bin)")
    if sorted(outcomes) != [False, False, True, True]:
        sys.exit("one of the two MPIs must be that of the plug-in, and the other must not")


main()
