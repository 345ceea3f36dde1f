#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""upgrade.py: rehearses an upgrade to the next version.

The script makes that version from a copy of this tree: one field more at the end of zoff_engine_opts, and a greater version. It
must read the golden files of this version and pass check_abi.py. Programs that were compiled with the headers of this version
must do the same on its library, and each version must go on from the state files of the other. A program of the next version
runs on this library, unless it sets the new field.

--after FIELD puts the field there instead, which has to fail."""
import argparse
import os
import re
import shutil
import subprocess
import sys

FIELD = "uint64_t rehearsed; /**< 0: the default; another number is refused */"
OPTS = "} zoff_engine_opts;"
READ = '"ZOFF_ENGINE_OPTS_INIT", opts, &known, sizeof known));'
REFUSE = '\n    ZOFF_FAIL_IF(known.rehearsed, ZOFF_ERR_INVALID, "rehearsed is %d", (int)known.rehearsed);'
# Bytes that are not zero follow the struct, as they may in an old program.
PROGRAM = """
#include <stdio.h>
#include <string.h>
#include <zoff/zoff.h>
int main(void)
{
    struct { zoff_engine_opts opts; unsigned char behind[256]; } s;
    float weight = 1, grad = 0.5f;
    zoff_param_desc param = {.value = &weight, .grad = &grad, .count = 1};
    zoff_engine *engine = NULL;
    memset(&s, 0xff, sizeof s);
    s.opts = (zoff_engine_opts)ZOFF_ENGINE_OPTS_INIT;
    s.opts.state_tier = ZOFF_TIER_HOST;
    s.opts.threads = 1;
    SET
    zoff_status status = zoff_engine_open(&s.opts, &param, 1, &engine);
    if (status >= 0)
        status = zoff_step(engine, NULL, NULL);
    printf("%s\\n", status < 0 ? zoff_last_error() : weight < 1 ? "trained" : "not trained");
    zoff_engine_destroy(engine);
    return status < 0;
}
"""


def run(*command, cwd=None, env=None, fails=False):
    """Return the output of a command. If it ends otherwise than expected, end the test and print the output."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\nexit status {done.returncode}")
    return done.stdout


def replace(path, *changes):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for old, new in changes:
        if text.count(old) != 1:
            sys.exit(f"{path} no longer has {old!r} once")
        text = text.replace(old, new)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def equal(what, of_this, of_next):
    if of_this != of_next:
        sys.exit(f"{what}: with the library of this version\n{of_this}\nwith that of the next version\n{of_next}")
    print(f"{what}: {of_this.strip().splitlines()[-1]}")


class Version:
    """An installed version, and programs compiled with its headers."""

    def __init__(self, a, build, prefix):
        run(a.cmake, "--install", build, "--prefix", prefix)
        self.cc, self.flags = a.cc, [f"-I{prefix}/include", f"-L{prefix}/{a.libdir}", "-lzoff", "-lm"]
        self.path = {"LD_LIBRARY_PATH": f"{prefix}/{a.libdir}"}

    def compile(self, source, program):
        run(self.cc, "-std=gnu11", "-O2", source, "-o", program, *self.flags)


def make_next(a, source, build):
    """Build the next version, and return its number and this one's."""
    shutil.copytree(a.source, source, ignore=lambda folder, names: [name for name in names if name == ".git" or
                                                                   folder == a.source and name.startswith("build")])
    major, minor, patch = map(int, a.version.split("."))
    replace(f"{source}/CMakeLists.txt", (f"VERSION {a.version} ", f"VERSION {major}.{minor}.{patch + 1} "))
    replace(f"{source}/include/zoff/status.h", (f"VERSION_PATCH {patch}", f"VERSION_PATCH {patch + 1}"))
    opts = f"{source}/include/zoff/engine.h"
    if a.after:
        with open(opts, encoding="utf-8") as file:
            field = re.search(r"typedef struct zoff_engine_opts \{.*?(\n    [\w ]+[ *]" + a.after + ";)", file.read(), re.S).group(1)
        replace(opts, (field, f"{field} {FIELD.split('/')[0]}"))
    else:
        replace(opts, (OPTS, f"    {FIELD}\n{OPTS}"))
    replace(f"{source}/src/engine/options.c", (READ, READ + REFUSE))
    print(run(sys.executable, f"{source}/tests/abi/check_abi.py", "--cc", a.cc, "--include", f"{source}/include", "--symbols",
              f"{source}/src/libzoff.map", "--against", f"{source}/tests/abi/zoff-0.1.0.abi").strip())
    run(a.cmake, "-S", source, "-B", build, "-G", a.generator, f"-DCMAKE_C_COMPILER={a.cc}", f"-DCMAKE_INSTALL_LIBDIR={a.libdir}",
        "-DCMAKE_BUILD_TYPE=Release", "-DZOFF_TESTS=ON", "-DZOFF_CUDA=OFF")
    run(a.cmake, "--build", build, "--parallel", "2")
    run(a.cmake, "--build", build, "--parallel", "2", "--target", "golden_test")
    number = major * 10000 + minor * 100 + patch
    return number, number + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cc", "cmake", "source", "build", "version", "generator", "libdir", "work"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--after")
    a = parser.parse_args()
    shutil.rmtree(a.work, ignore_errors=True)
    source, build = f"{a.work}/source", f"{a.work}/build"
    numbers = make_next(a, source, build)

    golden = run(f"{build}/tests/golden/golden_test", env={"ZOFF_LOG_LEVEL": "warn"})
    print("golden files:", re.search(r"PASSED.*", golden).group())

    this, later = Version(a, a.build, f"{a.work}/this"), Version(a, build, f"{a.work}/next")
    os.chdir(a.work)
    # Programs that were compiled and linked before the upgrade.
    this.compile(f"{a.source}/tests/abi/consumer/main.c", "./consumer")
    said = [run("./consumer", env=version.path) for version in (this, later)]
    for text, number in zip(said, numbers):
        if not text.startswith(f"zoff {number}: "):
            sys.exit(f"not the library of version {number}: {text}")
    equal("tests/abi/consumer", *(text.partition(":")[2] for text in said))

    with open(f"{a.source}/README.md", encoding="utf-8") as file:
        blocks = dict(re.findall(r"```(?:c|json)\n// (train\.c|nvme\.json)\n(.*?)```", file.read(), re.S))
    for name, text in blocks.items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    this.compile("train.c", "./train")
    equal("README's program", *(run("./train", env=version.path) for version in (this, later)))
    # The last step that the files have, and the weights of that step: first of the old library's files, then of the new one's.
    for writer, reader in ((this, later), (later, this)):
        shutil.rmtree("states", ignore_errors=True)
        os.mkdir("states")
        run("./train", "nvme.json", env=writer.path)
        equal("state files of the " + ("old" if writer is this else "new") + " library", run("./train", "nvme.json", env=writer.path),
              run("./train", "nvme.json", env=reader.path))

    for name in ("mlp.c", "offload.diff", "dram.json"):
        shutil.copy(f"{a.source}/examples/mlp/{name}", ".")
    run("patch", "-s", "mlp.c", "offload.diff")
    this.compile("mlp.c", "./mlp")
    equal("examples/mlp", *(run("./mlp", "40", "dram.json", env=version.path) for version in (this, later)))
    for version in (this, later):
        run(f"{a.work}/this/bin/zoff", "selftest", env=version.path)
    print("zoff selftest: the command of the old version, on both libraries")

    # The same source with either headers. An option of a new program is refused by a library that does not know it, not ignored.
    unknown = (f"zoff_engine_opts has a field at byte ... that zoff {a.version} does not know, and it is not zero. Link the version "
               "that the program was compiled for, or start from ZOFF_ENGINE_OPTS_INIT")
    for headers, value, of_this, of_next in ((this, None, "trained", "trained"), (later, 0, "trained", "trained"),
                                             (later, 7, unknown, "rehearsed is 7")):
        with open("opts.c", "w", encoding="utf-8") as file:
            file.write(PROGRAM.replace("SET", "" if value is None else f"s.opts.rehearsed = {value};"))
        headers.compile("opts.c", "./opts")
        for version, expected in ((this, of_this), (later, of_next)):
            said = re.sub(r"at byte \d+", "at byte ...", run("./opts", env=version.path, fails=expected != "trained").strip())
            if said != expected:
                sys.exit(f"a program of the {'old' if headers is this else 'new'} headers, rehearsed = {value}, on the "
                         f"{'old' if version is this else 'new'} library says\n{said}\nnot\n{expected}")
            print(f"{'old' if headers is this else 'new'} program{'' if value is None else f', new field {value}'}, "
                  f"{'old' if version is this else 'new'} library: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
