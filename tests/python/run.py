#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [--venv DIR] FILE.py ... [-- ARGUMENT ...]: runs the tests of files of this folder; the arguments are those of unittest. With
--venv they have PyTorch. On a machine without one they are skipped, and a full run (ZOFF_TEST_FULL=1) installs it into DIR."""
import importlib
import os
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "python", "src"), HERE]
from torch_venv import need_torch  # noqa: E402


def main():
    arguments = sys.argv[1:]
    if "--venv" in arguments:
        at = arguments.index("--venv")
        torch = need_torch(os.path.abspath(arguments[at + 1]), installs=os.environ.get("ZOFF_TEST_FULL", "0") != "0")
        torch.set_num_threads(1)
        print("PyTorch", torch.__version__)
        del arguments[at:at + 2]
    files, _, more = " ".join(arguments).partition(" -- ")
    tests = types.ModuleType("tests")
    for file in files.split():
        found = importlib.import_module(file.removesuffix(".py"))
        vars(tests).update({name: case for name, case in vars(found).items() if isinstance(case, type) and issubclass(case, unittest.TestCase)})
    unittest.main(tests, argv=["run.py", *more.split()])


if __name__ == "__main__":
    main()
