#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_bundle.py: packs the GPU bundle from a build folder and checks that it runs on a bare machine.

check_bundle.py SOURCES BUILD FOLDER RUNTIME

FOLDER is emptied first. RUNTIME holds a libcudart that needs no GPU. Programs of the bundle run over it, once as intended, once
with too little time, and once with a plug-in that cannot be loaded: the last two must fail. Other runs simulate machines that
lack something."""
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time

MOST_BYTES = 60 << 20
# Libraries that the bundle must not contain. The machine supplies the C library and the loader; its C++, CUDA and NCCL
# installations supply the rest, which the runner searches.
SYSTEM = ("linux-vdso.so", "ld-linux", "libc.so.", "libm.so.", "libmvec.so.", "libpthread.so.", "libdl.so.", "librt.so.")
LARGE = ("libcublas.so.", "libcublasLt.so.", "libnccl.so.")
NEVER = SYSTEM + LARGE + ("libcuda.so", "libnvidia", "libmpi")
PROGRAMS = {"accel_contract", "e2e_device", "e2e_device_owned", "e2e_delays", "e2e_ranks", "kernels_test", "cpu_adam_test",
            "kernels_bits", "device", "cpu_adam", "step", "zoff"}

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


def numbers(version):
    return tuple(int(n) for n in version.split("."))


def check_about(bundle):
    with open(os.path.join(bundle, "about"), encoding="utf-8") as f:
        about = dict(line.split(maxsplit=1) for line in f.read().splitlines())
    print(about)
    if not about["version"][0].isdigit() or not about["cudart"].startswith("libcudart.so."):
        complain(f"about: {about}")
    # RHEL 9 must be able to run the bundle. A build machine with glibc 2.38 or newer is exempt: its headers themselves require
    # more.
    if numbers(platform.libc_ver()[1]) < (2, 38) and (numbers(about["glibc"]) > (2, 34) or numbers(about["glibcxx"]) > (3, 4, 29)):
        complain(f"wants glibc {about['glibc']} and libstdc++ {about['glibcxx']}; 2.34 and 3.4.29 are what RHEL 9 has")


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


def start(bundle, results, arguments, **environment):
    env = {name: value for name, value in os.environ.items() if not name.startswith("ZOFF_") and name != "LD_LIBRARY_PATH"}
    return subprocess.Popen([os.path.join(bundle, "run-gpu-tests"), *arguments, results], env={**env, **environment},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(bundle, folder, arguments, status, **environment):
    """Run the bundle; return the results that the runner wrote, or None if nothing ran."""
    results = os.path.join(folder, "results.json")
    if os.path.exists(results):
        os.remove(results)
    runner = start(bundle, results, arguments, **environment)
    said = runner.communicate()[0]
    print(said)
    if runner.returncode != status:
        complain(f"{' '.join(arguments)}: exit status {runner.returncode}, {status} expected")
    if not os.path.exists(results):
        return None
    with open(results, encoding="utf-8") as f:
        told = json.load(f)
    told["said"] = said
    return told


def check_run(bundle, folder, runtime):
    told = run(bundle, folder, ["--quick", "--only", "^(accel_contract|zoff)$"], 0, ZOFF_CUDART_PATH=runtime, GTEST_FILTER="AccelContract.*:*AConversion*")
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
    """The results include the JSON of a benchmark."""
    told = run(bundle, folder, ["--quick", "--only", "^device$", "--elements", "1Mi"], 0, ZOFF_CUDART_PATH=runtime)
    device = told["programs"][0]
    if device["verdict"] != "passed" or device["results"]["ratios"]["bytes_per_parameter"] != 4:
        complain(f"the benchmark: {device}")


def check_timeout(bundle, folder, runtime):
    told = run(bundle, folder, ["--quick", "--only", "^kernels_test$", "--seconds-per-program", "1"], 1, ZOFF_CUDART_PATH=runtime)
    if told["failed"] != ["kernels_test"] or told["programs"][0]["verdict"] != "timeout" or told["programs"][0]["status"] != 124:
        complain(f"a program that took too long: {told['programs']}")


def check_broken(bundle, folder, runtime):
    """A gtest program that finds no accelerator runs no test and reports success. The runner must report a failure."""
    broken = os.path.join(folder, "broken")
    shutil.copytree(bundle, broken)
    with open(os.path.join(broken, "lib", "libzoff_cuda.so"), "wb") as f:
        f.write(b"no library")
    told = run(broken, folder, ["--quick", "--only", "^accel_contract$"], 1, ZOFF_CUDART_PATH=runtime)
    if told["failed"] != ["accel_contract"] or told["programs"][0]["tests"]["passed"] or not told["programs"][0]["last_lines"]:
        complain(f"with a plug-in that cannot be loaded: {told}")


def check_time(bundle, folder, runtime):
    """A program that has not ended when the total time is over counts as unfinished, not as failed, and is named."""
    told = run(bundle, folder, ["--only", "^(zoff|kernels_test|kernels_bits.avx2)$", "--seconds", "2"], 1, ZOFF_CUDART_PATH=runtime)
    if told["verdict"] != "unfinished" or told["failed"] or told["unfinished"] != ["kernels_test", "kernels_bits.avx2"]:
        complain(f"time was over: {told['verdict']}, {told['failed']}, {told['unfinished']}")
    if "--only '^(kernels_test|kernels_bits.avx2)$'" not in told["said"]:
        complain(f"time was over: {told['said']}")


def check_interrupted(bundle, folder, runtime):
    results = os.path.join(folder, "stopped.json")
    runner = start(bundle, results, ["--only", "^(zoff|kernels_test)$"], ZOFF_CUDART_PATH=runtime)
    until = time.monotonic() + 60
    while not os.path.exists(results) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)
    runner.send_signal(signal.SIGINT)
    runner.communicate(timeout=30)
    with open(results, encoding="utf-8") as f:
        told = json.load(f)
    if runner.returncode != 130 or told["verdict"] != "interrupted" or [p["name"] for p in told["programs"]] != ["zoff"]:
        complain(f"interrupted: {runner.returncode}, {told}")
    if [name for name in os.listdir(folder) if name.startswith("zoff-gpu-")]:
        complain("interrupted: scratch files are left")


def check_lacking(bundle, folder, runtime):
    """Simulate, by a false ldd, machines with an old C library and machines without NCCL. Also test a program that crashes."""
    tools = os.path.join(folder, "a folder of tools")
    os.makedirs(tools)

    def ldd(script):
        with open(os.path.join(tools, "ldd"), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + script)
        os.chmod(os.path.join(tools, "ldd"), 0o755)
        return {"PATH": tools + ":" + os.environ["PATH"], "ZOFF_CUDART_PATH": runtime}

    if run(bundle, folder, ["--only", "^zoff$"], 2, **ldd("echo 'ldd (GNU libc) 2.17'\n")):
        complain("runs on an old C library")
    told = run(bundle, folder, ["--only", "^(zoff|nccl_works_2)$"], 3,
               **ldd(f"exec {shutil.which('ldd')} \"$@\" | sed 's/libnccl.so.2 => .*/libnccl.so.2 => not found/'\n"))
    if {p["name"]: p["verdict"] for p in told["programs"]} != {"zoff": "passed", "nccl_works_2": "skipped"}:
        complain(f"without NCCL: {told}")
    elif "NCCL_ROOT" not in told["programs"][1]["why"]:
        complain(f"without NCCL: {told['programs'][1]}")
    if run(bundle, folder, ["--only", "^there is none$"], 2, ZOFF_CUDART_PATH=runtime):
        complain("runs what is not there")

    copy = os.path.join(folder, "a copy")
    shutil.copytree(bundle, copy)
    with open(os.path.join(copy, "bin", "accuracy_test"), "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\necho '[==========] Running'\necho '[ RUN      ] A.B/c'\nkill -SEGV $$\n")
    os.chmod(os.path.join(copy, "bin", "zoff"), 0o644)
    told = run(copy, folder, ["--only", "^(zoff|accuracy_test)$"], 1, ZOFF_CUDART_PATH=runtime)
    if told["failed"] != ["accuracy_test"] or told["programs"][1]["failed_tests"] != ["A.B/c, which did not end"]:
        complain(f"a program that dies: {told}")


TRAINER = """#!/bin/sh
loss=1 most=1000
case "$*" in *"--stage 3"*) loss=$LOSS most=$MOST ;; esac
case "$*" in *just-in-time*) loss=$LATE ;; esac
for word; do
    [ "$last" = --config ] && grep -q speculation_memory "$word" && echo "  $AHEAD"
    last=$word
done
echo "  step 1/1  loss $loss  norm 1"
echo "  device memory of the library: 1000 bytes planned; 1000 at first, $most at most after a step"
echo "  weights 1"
"""


def check_trainer(bundle, folder, runtime):
    """A trainer whose losses differ at stage 3 or beside the passes, whose device memory grows, or that updates nothing
    ahead, must fail. A script stands in for it, because cuBLAS is not here."""
    copy = os.path.join(folder, "with a trainer")
    tools = os.path.join(folder, "tools that find cuBLAS")
    shutil.copytree(bundle, copy)
    os.makedirs(tools)
    for name, script in ((os.path.join(copy, "bin", "cuda_trainer"), TRAINER),
                         (os.path.join(tools, "ldd"), "#!/bin/sh\ncase $* in *cuda_trainer) echo '\tlibcublas.so => /dev/null (0x0)' ;; "
                                                      f"*) exec {shutil.which('ldd')} \"$@\" ;; esac\n")):
        with open(name, "w", encoding="utf-8") as f:
            f.write(script)
        os.chmod(name, 0o755)
    good = {"LOSS": "1", "MOST": "1000", "LATE": "1", "AHEAD": "3 of 4 buckets were updated before the norm was known, 0 of them again"}
    for name, wrong in ((None, {}), ("zero3_cpu", {"LOSS": "2"}), ("zero3_cpu", {"MOST": "1001"}), ("hidden", {"LATE": "2"}),
                        ("hidden", {"AHEAD": ""})):
        failed = [f"cuda_trainer_{name}"] if name else []
        told = run(copy, folder, ["--only", "^cuda_trainer(|_zero3_cpu|_hidden)$"], 1 if failed else 0,
                   PATH=tools + ":" + os.environ["PATH"], ZOFF_CUDART_PATH=runtime, **{**good, **wrong})
        passed = [p["name"] for p in told["programs"] if p["verdict"] == "passed"]
        if told["failed"] != failed or len(passed) != 3 - len(failed):
            complain(f"a trainer with {wrong}: {told}")


def main():
    sources, build, folder, runtime = sys.argv[1:]
    bundle = os.path.join(folder, "gpu-bundle")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    subprocess.run([os.path.join(sources, "scripts", "gpu-bundle"), "--from", build, "--to", bundle], check=True)
    check_size(bundle)
    check_plan(bundle)
    check_about(bundle)
    check_libraries(bundle)
    check_run(bundle, folder, runtime)
    check_bench(bundle, folder, runtime)
    check_timeout(bundle, folder, runtime)
    check_time(bundle, folder, runtime)
    check_interrupted(bundle, folder, runtime)
    check_lacking(bundle, folder, runtime)
    check_trainer(bundle, folder, runtime)
    check_broken(bundle, folder, runtime)
    shutil.rmtree(folder)
    print(f"{len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
