#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check_prose.py: checks that check_prose.py reports each kind of sentence, and reads every kind of file."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_prose

LONG = "This " + 34 * "long " + "sentence ends."
FILES = {
    "src/a.c": f'/* {LONG} Short. */\nconst char *b = "What follows is a message.";\n',
    "tests/b.cc": "// Of the two the second is right.\nTEST_F(A, OfTwoIsOne)\nTEST(A, OffIsOff)\nTEST(a, what_is_b)\n",
    "docs/c.md": f"# Title\n\n{LONG}\n\n```sh\n{LONG}\n```\n",
    "d.py": '"""Whatever it is, it is read."""\n',
    "CMakeLists.txt": "# What it says.\n",
    "good.c": "/* One sentence. Is this one? What is it? */\n",
}


class CheckProse(unittest.TestCase):
    def setUp(self):
        self.root = self.enterContext(tempfile.TemporaryDirectory())
        for name, text in FILES.items():
            os.makedirs(os.path.dirname(os.path.join(self.root, name)), exist_ok=True)
            with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
                file.write(text)

    def test_complaints(self):
        found = [(name, why) for name, _, _, why in check_prose.complaints(self.root, FILES)]
        long = "37 words, at most 35"
        self.assertEqual(found, [("src/a.c", long), ("src/a.c", "opens with 'What'"), ("tests/b.cc", "opens with 'Of'"), *[("tests/b.cc", "a test is named by what holds")] * 2,
                                 ("docs/c.md", long), ("d.py", "opens with 'Whatever'"), ("CMakeLists.txt", "opens with 'What'")])

    def test_status(self):
        good = self.enterContext(tempfile.TemporaryDirectory())
        shutil.copy(os.path.join(self.root, "good.c"), good)
        for root, status in ((good, 0), (self.root, 1)):
            done = subprocess.run([sys.executable, check_prose.__file__, root], stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, status, done.stdout)


if __name__ == "__main__":
    unittest.main()
