#!/usr/bin/env python3
"""check_bundle.py: packs the GPU bundle from a build folder and holds it to what a bare machine can be asked for.

check_bundle.py SOURCES BUILD FOLDER RUNTIME

FOLDER is made anew. RUNTIME has a libcudart that needs no GPU: over it programs run as they would over the real one, as they should,
and for too long, and with a plug-in that cannot be loaded, which must not pass."""
import json
import os
import shutil
import subprocess
import sys

MOST_BYTES = 60 << 20
# The machine's own: the C library and the loader, and what its C++, CUDA and NCCL have; the runner looks for the latter.
SYSTEM = ("linux-vdso.so", "ld-linux", "libc.so.", "libm.so.", "libmvec.so.", "libpthread.so.", "libdl.so.", "librt.so.")
LARGE = ("libcublas.so.", "libcublasLt.so.", "libnccl.so.")
NEVER = SYSTEM + LARGE + ("libcuda.so", "libnvidia", "libmpi")
PROGRAMS = {"accel_contract", "e2e_device", "e2e_delays", "e2e_ranks", "kernels_test", "cpu_adam_test", "kernels_bits", "device",
            "cpu_adam", "step", "zoff"}

complaints = []


def complain(words):
    print("COMPLAINT:", words)
    complaints.append(words)


def elves(bundle):
    for folder, _, names in os.walk(bundle):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                if f.read(4) == b"\x7fELF":
                    yield path


def check_size(bundle):
    size = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(bundle) for name in names)
    print(f"{size} bytes")
    if size > MOST_BYTES:
        complain(f"{size} bytes; {MOST_BYTES} are the most")


def check_plan(bundle):
    with open(os.path.join(bundle, "plan"), encoding="utf-8") as f:
        rows = [line.split() for line in f]
    missing = PROGRAMS - {row[1] for row in rows}
    if missing:
        complain(f"not packed: {', '.join(sorted(missing))}")
    for row in rows:
        if not os.access(os.path.join(bundle, row[2]), os.X_OK):
            complain(f"{row[2]} of the plan is no program")


def check_libraries(bundle):
    lib = os.path.join(bundle, "lib")
    search = {**os.environ, "LD_LIBRARY_PATH": f"{lib}:{lib}/cudart:{lib}/cxx"}
    for path in elves(bundle):
        name = os.path.relpath(path, bundle)
        if os.path.basename(path).startswith(NEVER):
            complain(f"{name}: never packed")
        dynamic = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
        if "RUNPATH" in dynamic or "RPATH" in dynamic:
            complain(f"{name}: looks for libraries where this machine has them")
        found = subprocess.run(["ldd", path], env=search, capture_output=True, text=True, check=False).stdout
        for line in found.splitlines():
            words = line.split()
            if not words or words[0].startswith("/") or words[0].startswith(SYSTEM + LARGE):
                continue
            if "statically" not in line and (len(words) < 3 or not os.path.realpath(words[2]).startswith(os.path.realpath(bundle))):
                complain(f"{name}: {line.strip()}: not in the bundle")


def run(bundle, folder, arguments, status, **environment):
    """What the runner writes down."""
    results = os.path.join(folder, "results.json")
    env = {name: value for name, value in os.environ.items() if not name.startswith("ZOFF_") and name != "LD_LIBRARY_PATH"}
    command = [os.path.join(bundle, "run-gpu-tests"), *arguments, results]
    done = subprocess.run(command, env={**env, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)
    if done.returncode != status:
        complain(f"{' '.join(arguments)}: exit status {done.returncode}, {status} was expected")
    with open(results, encoding="utf-8") as f:
        return json.load(f)


def check_run(bundle, folder, runtime):
    told = run(bundle, folder, ["--quick", "--only", "^(accel_contract|zoff)$"], 0, ZOFF_CUDART_PATH=runtime)
    if told["verdict"] != "passed" or told["failed"] or told["quick"] is not True:
        complain(f"the run: {told['verdict']}, {told['failed']}")
    if os.path.dirname(told["machine"]["cuda_runtime"]) != os.path.realpath(runtime):
        complain(f"over {told['machine']['cuda_runtime']}, not over {runtime}")
    if not told["machine"]["cpu"] or told["machine"]["cores"] < 1 or not told["bundle"]["commit"]:
        complain("the machine or the bundle is not described")
    programs = {p["name"]: p for p in told["programs"]}
    contract = programs["accel_contract"]
    if contract["verdict"] != "passed" or contract["status"] != 0 or contract["seconds"] <= 0 or "accel_contract" not in contract["command"]:
        complain(f"accel_contract: {contract}")
    if contract["tests"]["passed"] < 10 or contract["tests"]["failed"] or contract["tests"]["skipped"]:
        complain(f"tests of accel_contract: {contract['tests']}")
    if programs["zoff"]["verdict"] != "passed" or programs["zoff"]["tests"] is not None:
        complain(f"zoff: {programs['zoff']}")


def check_bench(bundle, folder, runtime):
    """The JSON of a benchmark is part of the results."""
    told = run(bundle, folder, ["--quick", "--only", "^device$", "--elements", "1Mi"], 0, ZOFF_CUDART_PATH=runtime)
    device = told["programs"][0]
    if device["verdict"] != "passed" or device["results"]["ratios"]["bytes_per_parameter"] != 4:
        complain(f"the benchmark: {device}")


def check_timeout(bundle, folder, runtime):
    told = run(bundle, folder, ["--quick", "--only", "^kernels_test$", "--seconds-per-program", "1"], 1, ZOFF_CUDART_PATH=runtime)
    if told["failed"] != ["kernels_test"] or told["programs"][0]["verdict"] != "timeout" or told["programs"][0]["status"] != 124:
        complain(f"a program that took too long: {told['programs']}")


def check_broken(bundle, folder, runtime):
    """A program of gtest that finds no accelerator runs nothing and says that it passed."""
    broken = os.path.join(folder, "broken")
    shutil.copytree(bundle, broken)
    with open(os.path.join(broken, "lib", "libzoff_cuda.so"), "wb") as f:
        f.write(b"no library")
    told = run(broken, folder, ["--quick", "--only", "^accel_contract$"], 1, ZOFF_CUDART_PATH=runtime)
    if told["failed"] != ["accel_contract"] or told["programs"][0]["tests"]["passed"] or not told["programs"][0]["last_lines"]:
        complain(f"with a plug-in that cannot be loaded: {told}")


def main():
    sources, build, folder, runtime = sys.argv[1:]
    bundle = os.path.join(folder, "gpu-bundle")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    subprocess.run([os.path.join(sources, "scripts", "gpu-bundle"), "--from", build, "--to", bundle], check=True)
    check_size(bundle)
    check_plan(bundle)
    check_libraries(bundle)
    check_run(bundle, folder, runtime)
    check_bench(bundle, folder, runtime)
    check_timeout(bundle, folder, runtime)
    check_broken(bundle, folder, runtime)
    shutil.rmtree(folder)
    print(f"{len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
