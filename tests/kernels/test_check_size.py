#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check_size.py: checks that check_size.py refuses a library, a table and its pairs that are too large."""
import os
import subprocess
import sys
import tempfile
import unittest

import check_size


class CheckSize(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def build(self, name, size, *flags):
        path = os.path.join(self.folder, name)
        subprocess.run(["cc", "-x", "assembler", *flags, "-o", path, "-"], input=f".text\n.fill {size}\n", text=True, check=True)
        return path

    def words_about(self, library=1000, scalar=1000, avx2=1000, pairs=1000):
        objects = [self.build(f"kernels_{name}.c.o", size, "-c")
                   for name, size in (("scalar", scalar), ("avx2", avx2), ("avx2_pairs", pairs)) if size]
        paths = [self.build("libzoff.so", library, "-shared", "-nostdlib"), *objects, self.build("walk.c.o", 300_000, "-c")]
        done = subprocess.run([sys.executable, check_size.__file__, *paths], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1 if done.stderr else 0)
        return done.stderr.strip()

    def test_limits(self):
        self.assertEqual(self.words_about(), "")
        self.assertEqual(self.words_about(library=1_700_001), "FAILED: too large: the library")
        self.assertEqual(self.words_about(scalar=200_001), "FAILED: too large: the table scalar")
        self.assertEqual(self.words_about(avx2=200_001), "FAILED: too large: the table avx2")
        self.assertEqual(self.words_about(pairs=200_001), "FAILED: too large: the table avx2_pairs")
        self.assertEqual(self.words_about(scalar=0), "FAILED: no object of the table scalar")


if __name__ == "__main__":
    unittest.main()
