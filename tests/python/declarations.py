# SPDX-License-Identifier: Apache-2.0
"""declarations.py: the package without PyTorch: layout of the declarations, the loader, configurations and errors."""
import ctypes
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

import zoff
from zoff import _api
from zoff._load import lib
from zoff.errors import check

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def import_with(library):
    """The last line of an import with another library."""
    done = subprocess.run([sys.executable, "-c", "import zoff"], env={**os.environ, "ZOFF_LIBRARY": library, "PYTHONPATH": os.pathsep.join(sys.path)},
                          capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


class Declarations(unittest.TestCase):
    def test_structs_have_the_layout_of_c(self):
        with open(os.path.join(ROOT, "share", "zoff", "api.json"), encoding="utf-8") as file:
            api = json.load(file)
        self.assertEqual(set(api["calls"]), set(_api.CALLS))
        for name, struct in api["structs"].items():
            its = getattr(_api, name)
            self.assertEqual((struct["size"], struct["align"]), (ctypes.sizeof(its), ctypes.alignment(its)), name)
            self.assertEqual([field["name"] for field in struct["fields"]], [field[0] for field in its._fields_], name)
            for field in struct["fields"]:
                place = getattr(its, field["name"])
                self.assertEqual((field["offset"], field["size"]), (place.offset, place.size), f"{name}.{field['name']}")

    def test_a_struct_knows_its_size(self):
        self.assertEqual(ctypes.sizeof(_api.zoff_step_args), _api.zoff_step_args().struct_size)
        self.assertEqual(ctypes.c_size_t, lib.zoff_grads_hand_over.argtypes[2])


class Loader(unittest.TestCase):
    def library(self, code):
        folder = tempfile.TemporaryDirectory(dir=".")
        self.addCleanup(folder.cleanup)
        path = os.path.join(os.path.abspath(folder.name), "libother.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", path], input=code, text=True, check=True)
        return path

    def test_another_version_is_refused_with_both_numbers(self):
        said = import_with(self.library("unsigned zoff_version(void) { return 20304; }"))
        self.assertRegex(said, f"ImportError: .*libother.so has version 2.3.4, and the Python package has version {zoff.__version__}: install the same")

    def test_a_library_of_another_kind_is_refused(self):
        self.assertRegex(import_with(self.library("int x;")), "ImportError: .*libother.so is no library of zoff; set ZOFF_LIBRARY")

    def test_another_build_of_the_same_version_is_refused(self):
        said = import_with(self.library(f"unsigned zoff_version(void) {{ return {_api.ZOFF_VERSION_NUMBER}; }}"))
        self.assertRegex(said, f"ImportError: .*libother.so is another build of zoff {zoff.__version__} than this package: .*undefined symbol")

    def test_a_missing_library_is_named(self):
        self.assertRegex(import_with("/nowhere/libzoff.so.0"), "ImportError: zoff cannot load its library /nowhere/libzoff.so.0: .*or set ZOFF_LIBRARY")

    def test_the_package_is_usable_without_torch(self):
        code = "import sys; sys.modules['torch'] = None; import zoff; zoff.Config(); zoff."
        for name in ("AdamW", "CPUAdam", "torch"):
            done = subprocess.run([sys.executable, "-c", code + name], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True,
                                  text=True, check=False)
            self.assertEqual(f"ModuleNotFoundError: zoff.{name} needs torch 2.4 or newer, which is not installed: pip install torch",
                             done.stderr.splitlines()[-1])


class Configuration(unittest.TestCase):
    def test_keywords_set_keys(self):
        text = str(zoff.Config(nvme=["a", "b"], host_memory="64MiB", moments="bf16", master="split", threads=2, persist=True))
        for line in ('zero_optimization.offload_optimizer.device = "nvme"', 'zero_optimization.offload_optimizer.nvme_path = ["a", "b"]',
                     "zoff.host_memory = 67108864", 'zoff.moments = "bf16"', 'zoff.master = "split"', "zoff.threads = 2", "zoff.persist = true"):
            self.assertIn(line, text)

    def test_a_file_and_a_dictionary_say_the_same(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json", dir=".") as file:
            file.write('{"zoff": {"threads": 3}} // a remark')
            file.flush()
            self.assertIn(f"zoff.threads = 3".ljust(76) + f"# {file.name}:1:11", str(zoff.Config(file.name)))
        self.assertIn("zoff.threads = 3", str(zoff.Config({"zoff": {"threads": 3}})))

    def test_a_wrong_key_is_refused_and_changes_nothing(self):
        config = zoff.Config(threads=2)
        with self.assertRaisesRegex(zoff.Error, 'did you mean "zoff.threads"') as caught:
            config.set("zoff.thread", 1)
        self.assertEqual(_api.ZOFF_ERR_INVALID, caught.exception.status)
        self.assertIn("zoff.threads = 4", str(config.set("zoff.threads", 4)))

    def test_a_configuration_is_copied_by_value(self):
        self.assertEqual(str(zoff.Config(threads=2)), str(pickle.loads(pickle.dumps(zoff.Config(threads=2)))))


class Errors(unittest.TestCase):
    def test_a_status_has_its_class(self):
        for status, kind in ((_api.ZOFF_ERR_NO_SPACE, zoff.NoSpace), (_api.ZOFF_ERR_CORRUPT, zoff.Corrupt), (_api.ZOFF_ERR_STATE, zoff.Error)):
            with self.assertRaises(zoff.Error) as caught:
                check(status)
            self.assertIs(kind, type(caught.exception))
            self.assertEqual(status, pickle.loads(pickle.dumps(caught.exception)).status)
        self.assertEqual(_api.ZOFF_PENDING, check(_api.ZOFF_PENDING))
