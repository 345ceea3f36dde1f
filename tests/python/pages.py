# SPDX-License-Identifier: Apache-2.0
"""pages.py: the programs of the pages run."""
import contextlib
import io
import os
import re
import unittest

from models import Folders

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Pages(Folders, unittest.TestCase):
    def test_programs_run(self):
        for page, name, wanted in (("python/README.md", "train", "loss 0.0000"), ("docs/how-to/train-with-pytorch.md", "train", "norm "),
                                   ("docs/how-to/train-with-pytorch.md", "engine", "norm ")):
            with open(os.path.join(ROOT, page), encoding="utf-8") as file:
                programs = re.findall(rf"^```python\n# {name}.py\n(.*?)^```", file.read(), re.M | re.S)
            self.assertEqual(1, len(programs), page)
            printed, here = io.StringIO(), os.getcwd()
            try:
                os.chdir(self.folder())
                with contextlib.redirect_stdout(printed):
                    exec(programs[0], {})
            finally:
                os.chdir(here)
            self.assertEqual(wanted, printed.getvalue()[:len(wanted)])
            if page.startswith("python"):
                self.assertLessEqual(len([line for line in programs[0].splitlines() if line]), 12)
