#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""same_bits.py: checks that another version of the library trains to the same bits and refuses the same combinations.

    tests/combinations/same_bits.py COMMIT --work /var/tmp/bits              compares COMMIT with the current sources
    tests/combinations/same_bits.py COMMIT --work /var/tmp/bits --sample 9  one in nine cells, fewer steps

Builds both versions, runs the same programs on each, and compares the output line by line:
- every cell of tests/combinations. The program comes from the newer sources and is built against the public headers of each
  version. Cells also run over the test libraries that stand in for CUDA and NCCL.
- examples/gpt with 1, 2 and 4 ranks in stages 0 to 3. States are in DRAM or in files; the engine may own the weights.
- the five runs of scripts/demo.

Exits with 0 when every line is the same. With --words-may-differ the text of a refusal may differ."""
import argparse
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LICENCES = "/usr/share/common-licenses"


def run(command, folder, environment=None, seconds=3600):
    """Return the standard output of a command; end the program if the command fails."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


class Version:
    """The sources of one version, its libraries and its programs."""

    def __init__(self, name, work, commit):
        self.name, self.work = name, os.path.join(work, name)
        self.sources = os.path.join(work, "sources") if commit else ROOT
        self.build = os.path.join(self.work, "build")
        os.makedirs(self.work, exist_ok=True)
        if commit:
            shutil.rmtree(self.sources, ignore_errors=True)
            os.makedirs(self.sources)
            archive = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", self.sources], input=archive, check=True)

    def make(self):
        """Returns True if the libraries that stand in for CUDA and NCCL were built, too."""
        run(["cmake", "-S", self.sources, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DZOFF_TESTS=ON"], ROOT)
        known = run(["ninja", "-C", self.build, "-t", "targets", "all"], ROOT)
        stand_ins = [t for t in ("cuda_on_threads", "nccl_on_threads", "zoff_cuda", "zoff_nccl") if f"\n{t}: " in known]
        mpi = [t for t in ("zoff_mpi",) if f"\n{t}: " in known]
        run(["cmake", "--build", self.build, "--target", "zoff", "gpt", *mpi, *stand_ins], ROOT)
        sources = [os.path.join(HERE, n) for n in sorted(os.listdir(HERE)) if n.endswith(".cc") and not n.endswith("_test.cc")]
        run([os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-I", os.path.join(self.sources, "include"), *sources, "-o",
             os.path.join(self.work, "combinations"), "-L", self.build, "-lzoff", f"-Wl,-rpath,{self.build}", "-ldl", "-pthread"],
            ROOT)
        return len(stand_ins) == 4

    def cells(self, arguments):
        over = os.path.join(self.build, "tests/cuda/on_threads")
        environment = {"ZOFF_PLUGIN_PATH": f"{self.build}:{self.build}/zoff", "LD_LIBRARY_PATH": over} if "--nccl" in arguments else {}
        lines = run([os.path.join(self.work, "combinations"), *arguments], self.work, environment).splitlines()
        return dict(line.split(": ", 1) for line in lines)

    def gpt(self, name, ranks, arguments):
        """Return the losses and weights of a run of examples/gpt."""
        folder = os.path.join(self.work, "gpt")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.join(folder, "states"))
        command = [os.path.join(self.build, "examples/gpt/gpt"), *arguments, "--print-every", "0", "--json", "out.json"]
        if ranks:
            root = ["--allow-run-as-root"] if os.getuid() == 0 else []
            command = ["mpirun", *root, "--oversubscribe", "-n", str(ranks), *command, "--ranks", "auto"]
        run(command, folder, {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2"})
        with open(os.path.join(folder, "out.json"), encoding="utf-8") as f:
            out = json.load(f)
        return {f"gpt {name} losses": " ".join(out["loss_bits"]), f"gpt {name} weights": out["weights_hash"]}


def config_file(work, stage, device, owned):
    """Write a ds_config for examples/gpt. Both versions read the same file."""
    offload = {"device": device, **({"nvme_path": "states", "buffer_count": 3} if device == "nvme" else {})}
    zero = {"stage": stage, "offload_optimizer": offload}
    if owned:
        zero.update({"offload_param": dict(offload), "stage3_param_persistence_threshold": 100})
    text = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}}, "gradient_clipping": 1.0,
            "zero_optimization": zero, "zoff": {"host_memory": "1MiB"} if device == "nvme" else {}}
    path = os.path.join(work, f"stage{stage}-{device}-{'owned' if owned else 'whole'}.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(text, f)
    return path


def gpt_runs(work, steps):
    """(name, ranks, arguments) of every run of examples/gpt."""
    text = os.path.join(work, "text")
    with open(text, "wb") as f:
        for name in sorted(os.listdir(LICENCES)):
            path = os.path.join(LICENCES, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as licence:
                    f.write(licence.read())
    small = ["--text", text, "--layers", "2", "--heads", "2", "--width", "64", "--context", "32", "--batch", "8", "--steps", str(steps)]
    has_mpi = shutil.which("mpirun") is not None
    for ranks in (1, 2, 4) if has_mpi else ():
        for stage in range(4):
            for device in ("cpu", "nvme"):
                for owned in (False, True) if stage == 3 else (False,):
                    yield (f"{ranks} rank(s) stage {stage} {device}{' owned' if owned else ''}", ranks,
                           [*small, "--config", config_file(work, stage, device, owned), *(["--owned"] if owned else [])])
    configs = os.path.join(ROOT, "examples/gpt")
    learn = ["--text", text, "--layers", "4", "--heads", "4", "--width", "128", "--context", "64", "--batch", "16", "--steps", str(4 * steps)]
    big = ["--text", text, "--dtype", "bf16", "--layers", "4", "--heads", "8", "--width", "1024", "--context", "32", "--batch", "2",
           "--steps", str(max(2, steps // 5))]
    yield "demo plain", 0, [*learn, "--optimizer", "plain", "--lr", "5e-4", "--weight-decay", "0.01", "--clip", "1"]
    for name, arguments in (("small-dram", learn), ("small-nvme", learn), ("big-dram", big), ("big-nvme", big)):
        yield f"demo {name}", 0, [*arguments, "--config", os.path.join(configs, name + ".json")]


def compare(both, words_may_differ):
    """Print the lines that differ; return their number."""
    old, new = both
    different = 0
    for name in sorted(set(old) | set(new)):
        a, b = old.get(name, "(none)"), new.get(name, "(none)")
        if a != b and not (words_may_differ and a.startswith("refused") and b.startswith("refused")):
            different += 1
            print(f"DIFFERENT {name}\n  old: {a[:300]}\n  new: {b[:300]}")
    refused = sum(line.startswith("refused") for line in new.values())
    print(f"{len(new)} lines compared, {refused} of them refusals: {different} differ")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the other version")
    parser.add_argument("--work", required=True, help="folder for builds and runs")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="run one in N of the cells (default: all)")
    parser.add_argument("--words-may-differ", action="store_true", help="the text of a refusal may differ")
    parser.add_argument("--only", choices=("cells", "nccl", "gpt"), help="this part alone")
    args = parser.parse_args()
    work = os.path.abspath(args.work)
    versions = Version("old", work, args.commit), Version("new", work, None)
    found = [{}, {}]
    has_stand_ins = all([version.make() for version in versions])
    for version, lines in zip(versions, found):
        if args.only in (None, "cells"):
            lines.update(version.cells(["--sample", str(args.sample)]))
        if args.only in (None, "nccl") and has_stand_ins:
            lines.update(version.cells(["--nccl", "--sample", str(args.sample)]))
        if args.only in (None, "gpt"):
            for name, ranks, arguments in gpt_runs(work, 20 if args.sample == 1 else 5):
                lines.update(version.gpt(name, ranks, arguments))
    if not has_stand_ins:
        print("not compared: cells over NCCL, because the CUDA or NCCL toolkit is missing here")
    sys.exit(1 if compare(found, args.words_may_differ) else 0)


if __name__ == "__main__":
    main()
