#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check_symbols.py: tests check_symbols.py with small libraries that are built here."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_symbols

CC = "cc"
HEADER = """#define ZOFF_API __attribute__((visibility("default")))
/* ZOFF_API int zoff_in_a_comment(void); */
ZOFF_API const char *zoff_name(int value);
ZOFF_API int zoff_count(int a,
                        int b);
"""
GOOD = '#include <zoff/zoff.h>\nconst char *zoff_name(int value) { return value ? "a" : "b"; }\nint zoff_count(int a, int b) { return a + b; }\n'


class CheckSymbols(unittest.TestCase):
    def build(self, files):
        """Build a shared and a static library from these sources, and the folder of their header."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        os.makedirs(os.path.join(folder, "zoff"))
        with open(os.path.join(folder, "zoff", "zoff.h"), "w", encoding="utf-8") as f:
            f.write(HEADER)
        objects = []
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(text)
            objects.append(os.path.join(folder, name + ".o"))
            subprocess.run([CC, "-fPIC", "-fvisibility=hidden", "-O0", "-I", folder, "-c", os.path.join(folder, name), "-o", objects[-1]],
                           check=True)
        shared, static = os.path.join(folder, "libx.so"), os.path.join(folder, "libx.a")
        subprocess.run([CC, "-shared", "-o", shared, *objects], check=True)
        subprocess.run(["ar", "rc", static, *objects], check=True)
        return shared, static, folder

    def test_a_good_library_passes(self):
        shared, static, include = self.build({"a.c": GOOD + "static const char *const words[] = {\"x\"}; const char *const *zoff_words(void) { return words; }\n"
                                                          "static _Thread_local int last; int zoff_last(void) { return last++; }\n"})
        self.assertEqual({"zoff_name", "zoff_count"}, check_symbols.promised(include))
        self.assertEqual([], list(check_symbols.check_exports(shared, include)))
        self.assertEqual([], list(check_symbols.check_calls(shared)))
        self.assertEqual([], list(check_symbols.check_stderr(static)))
        self.assertEqual([], list(check_symbols.check_state(static, {})))

    def test_missing_and_surplus_exports(self):
        text = GOOD.replace("int zoff_count(int a, int b) { return a + b; }", "ZOFF_API int zoff_extra; ZOFF_API void stray(void) {}")
        shared, _, include = self.build({"a.c": text})
        found = "\n".join(check_symbols.check_exports(shared, include))
        self.assertIn("zoff_count is declared in include/zoff and not exported", found)
        self.assertIn("stray is exported and not declared", found)
        self.assertIn("zoff_extra is exported and not declared", found)

    def test_a_variable_is_not_a_function(self):
        shared, _, include = self.build({"a.c": '#define ZOFF_API __attribute__((visibility("default")))\nZOFF_API int zoff_name = 1, zoff_count = 2;\n'})
        self.assertEqual(2, len([c for c in check_symbols.check_exports(shared, include) if "not as a function" in c]))

    def test_forbidden_calls(self):
        shared, static, _ = self.build({"a.c": GOOD + "#include <stdlib.h>\n#include <stdio.h>\nvoid f(int x) { if (x) exit(1); else abort(); }\n"
                                                     'void g(int x) { printf("%d", x); }\n'})
        for found in ("\n".join(check_symbols.check_calls(shared)), "\n".join(check_symbols.check_stderr(static))):
            for name in ("exit", "abort", "printf"):
                self.assertIn(f"refers to {name}:", found)

    def test_only_the_log_knows_stderr(self):
        text = '#include <stdio.h>\nvoid %s(int x) { fprintf(stderr, "%%d", x); }\n'
        _, static, _ = self.build({"log.c": text % "f", "other.c": text % "g"})
        found = list(check_symbols.check_stderr(static))
        self.assertTrue(found)
        self.assertTrue(all(c.startswith("other.c.o ") for c in found), found)

    def test_plugins(self):
        shared, _, _ = self.build({"a.c": '__attribute__((visibility("default"))) int zoff_plugin_init(void) { return 0; }\n'})
        self.assertEqual([], list(check_symbols.check_plugin(shared)))
        shared, _, _ = self.build({"a.c": GOOD + "int zoff_version(void); int f(void) { return zoff_version(); }\n"})
        found = "\n".join(check_symbols.check_plugin(shared))
        self.assertIn("exports zoff_count, zoff_name; a plug-in exports", found)
        self.assertIn("refers to zoff_version", found)

    def test_state(self):
        _, static, _ = self.build({"a.c": GOOD + "static int counter; static int level = 3; int shared_one;\n"
                                                "int *f(int x) { static int local; return x ? &counter : x > 1 ? &level : &local; }\n"})
        found = "\n".join(check_symbols.check_state(static, {("a.c.o", "level"): "allowed"}))
        for name in ("counter", "local", "shared_one"):
            self.assertIn(f"a.c.o: {name} is global mutable state", found)
        self.assertNotIn("level", found)


if __name__ == "__main__":
    if "--cc" in sys.argv:
        at = sys.argv.index("--cc")
        CC = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
