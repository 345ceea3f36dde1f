#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchrun.py ROOT LIBRARY VENV: README's program as the ranks that torchrun starts, without MPI and without a GPU. Run again, they go
on after the last complete step."""
import os
import re
import subprocess
import sys
import tempfile

CONFIG = '{"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "states"}}, "zoff": {"persist": true}}'


def program(root):
    with open(os.path.join(root, "README.md"), encoding="utf-8") as page:
        return re.search(r"^```c\n(.*?)^```$", page.read(), re.S | re.M)[1]


def run(command, folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI"))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    root, library, venv = map(os.path.abspath, sys.argv[1:])
    torchrun = os.path.join(venv, "bin", "torchrun")
    if not os.path.exists(torchrun):
        print("skipped: no torchrun: python3 -m venv build/torch-venv && build/torch-venv/bin/pip install torch numpy")
        sys.exit(77)
    os.environ["LD_LIBRARY_PATH"] = os.path.dirname(library)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("train.c", program(root)), ("nvme.json", CONFIG)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        status, words = run(["cc", "-O2", "train.c", "-o", "train", f"-I{root}/include", library], folder)
        if status != 0:
            sys.exit(words)
        for ranks in 2, 4:
            subprocess.run(["rm", "-rf", "states"], cwd=folder, check=True)
            os.mkdir(os.path.join(folder, "states"))
            for kind, first in (("auto", "0"), ("ucx", "2000")):
                status, words = run([torchrun, "--standalone", "--nproc-per-node", str(ranks), "--no-python", "./train", "nvme.json", kind], folder)
                if status != 0 or words.count(f"after step {first}: y = 0.50 x -0.25") != ranks:
                    sys.exit(f"{ranks} ranks, {kind}: exit status {status}\n{words}")
                print(f"{ranks} ranks, {kind}: {ranks} say y = 0.50 x -0.25, from step {first} on")


main()
