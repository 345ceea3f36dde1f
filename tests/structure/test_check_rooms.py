#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check_rooms.py: checks that check_rooms.py and check_readme.py report each violation, and report none in a
correct tree."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_readme
import check_rooms
import skipped

ROOMS = """# the table
function(zoff_room room)
endfunction()
zoff_room(base LINKS PkgConfig::numa)
zoff_room(aio NEEDS base LINKS PkgConfig::liburing)
zoff_room(cpu_adam NEEDS base)
zoff_room(engine NEEDS aio cpu_adam base)
"""
GOOD = {
    "cmake/rooms.cmake": ROOMS,
    "src/base/README.md": "# base\n",
    "src/aio/README.md": "# aio\n",
    "src/cpu_adam/README.md": "# cpu_adam\n",
    "src/engine/README.md": "# engine\n",
    "CMakeLists.txt": "project(x)\n",
    "include/zoff/aio.h": "/* aio.h: public. */\nvoid zoff_aio_open(void);\n",
    "src/base/log.h": "/* log.h: the log. */\nvoid zoff_base_log_line(void) __attribute__((format(printf, 1, 2)));\n",
    "src/base/log.c": '/* log.c: the sink. */\n#include "log.h"\nvoid zoff_base_log_line(void)\n{\n    fprintf(stderr, "x");\n}\n',
    "src/base/env.c": "/* env.c: variables. */\nconst char *zoff_base_env_get(void)\n{\n    return getenv(\"ZOFF_ISA\");\n}\n",
    "src/base/team.c": "/* team.c: threads. */\n#include <omp.h>\nvoid zoff_base_team_run(void)\n{\n#pragma omp parallel\n    omp_get_thread_num();\n}\n",
    "src/base/cpu.c": "/* cpu.c: MXCSR. */\n#include <xmmintrin.h>\nunsigned zoff_base_cpu_get(void)\n{\n    return _mm_getcsr();\n}\n",
    "src/aio/queue_door.h": "/* queue_door.h: the door. */\nvoid zoff_aio_queue_pump(void);\n",
    "src/aio/file_priv.h": "/* file_priv.h: inside. */\nvoid zoff_aio_file_open(void);\n",
    "src/aio/aio.h": "/* aio.h: the door. */\nvoid zoff_aio_short(void);\n",
    "src/aio/file.c": '/* file.c: files; never call exit() or getenv(). */\n#include "file_priv.h"\n#include "log.h"\n'
    'static int helper(int a)\n{\n    return a;\n}\nvoid zoff_aio_open(void)\n{\n    zoff_base_log_line("exit(1) printf(x)");\n}\n'
    "void zoff_aio_short(void)\n{\n}\nvoid zoff_aio_file_open(int a,\n                        int b)\n{\n}\n",
    "src/cpu_adam/simd/simd_avx2.h": "/* simd_avx2.h: vocabulary. */\n#include <immintrin.h>\n#define V _mm256_add_ps\n",
    "src/cpu_adam/update.c": "/* update.c: update. */\nvoid zoff_adam_update_run(void)\n{\n}\n",
    "src/engine/engine.c": '/* engine.c: conducts. */\n#include "aio.h"\n#include "queue_door.h"\nzoff_status zoff_engine_engine_go(void)\n{\n    static_assert(1, "fine");\n    return x;\n}\n',
    "tools/zoff.c": '/* zoff.c: the tool. */\n#include <zoff/aio.h>\n#include "verbs.h"\nint main(void)\n{\n    printf("x");\n    exit(1);\n}\n',
    "tools/verbs.h": "/* verbs.h: its verbs. */\n",
    "cuda/kernels.cu": '/* kernels.cu: kernels. */\n#include "log.h"\n#include <cuda_runtime_api.h>\n',
}


# Each source file begins with its licence.
GOOD = {path: f"/* {check_rooms.LICENCE} */\n{text}" if path.endswith(check_rooms.SOURCE) else text for path, text in GOOD.items()}


class CheckRooms(unittest.TestCase):
    def complaints(self, check, **changes):
        """Return the complaints of `check` about the correct tree with these files added or replaced."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**GOOD, **changes.pop("files", {})}.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text)
            return list(check(check_rooms.Tree(root)))

    def refuses(self, check, path, text, words):
        found = self.complaints(check, files={path: text})
        self.assertEqual(1, len(found), found)
        self.assertIn(words, found[0])
        self.assertTrue(found[0].startswith(path + ":"), found[0])

    def test_a_good_tree_passes_every_check(self):
        for check in check_rooms.CHECKS:
            self.assertEqual([], self.complaints(check), check.__name__)

    def test_the_table_is_read(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "cmake"))
            with open(os.path.join(root, "cmake/rooms.cmake"), "w", encoding="utf-8") as f:
                f.write(ROOMS)
            self.assertEqual({"base": set(), "aio": {"base"}, "cpu_adam": {"base"}, "engine": {"aio", "cpu_adam", "base"}},
                             check_rooms.Tree(root).rooms())

    def test_arrows(self):
        check = check_rooms.check_arrows
        self.refuses(check, "src/cpu_adam/walk.c", '/* walk.c: x. */\n#include "aio.h"\n', "cpu_adam does not NEED aio")
        self.refuses(check, "src/base/mem.c", '/* mem.c: x. */\n#  include "queue_door.h"\n', "base does not NEED aio")
        self.refuses(check, "src/engine/gate.c", '/* gate.c: x. */\n#include "file_priv.h"\n', "private to aio")
        self.refuses(check, "src/engine/gate.c", '/* gate.c: x. */\n#include "../aio/aio.h"\n', "plain name")
        self.refuses(check, "src/attic/old.c", "/* old.c: x. */\n", "no room 'attic'")

    def test_loops(self):
        check = check_rooms.check_loops
        table = ROOMS.replace("zoff_room(base LINKS", "zoff_room(base NEEDS engine LINKS")
        found = self.complaints(check, files={"cmake/rooms.cmake": table})
        self.assertEqual(4, len(found), found)  # with this change every room is in a cycle

    def test_cuda(self):
        check = check_rooms.check_cuda
        self.assertEqual([], self.complaints(check))
        self.refuses(check, "cuda/a.cu", '#include "aio.h"\n', "cuda/ sees the rooms accel, base, comm, cpu_adam")
        self.refuses(check, "src/aio/file.h", "#include <cuda_runtime_api.h>\n", "CUDA is known in cuda/ alone")
        self.refuses(check, "src/aio/file.h", "#include <nccl.h>\n", "CUDA is known in cuda/ alone")

    def test_outside(self):
        check = check_rooms.check_outside
        self.refuses(check, "tools/zoff.c", '/* zoff.c: x. */\n#include "log.h"\n', "only <zoff/...>")
        self.refuses(check, "examples/gpt/main.c", '/* main.c: x. */\n#include "../../src/base/log.h"\n', "only <zoff/...>")
        self.refuses(check, "bench/adam.c", '/* adam.c: x. */\n#include "zoff/aio.h"\n', "write <zoff/aio.h>")

    def test_intrinsics(self):
        check = check_rooms.check_intrinsics
        self.refuses(check, "src/cpu_adam/update.c", "/* update.c: x. */\n#include <immintrin.h>\n", "simd/")
        self.refuses(check, "src/cpu_adam/update.c", "/* update.c: x. */\nint a = _mm256_movemask_ps(b);\n", "simd/")
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\nint a = __builtin_ia32_rdtsc();\n", "simd/")

    def test_getenv(self):
        self.refuses(check_rooms.check_getenv, "src/aio/file.c", '/* file.c: x. */\n\nchar *a = getenv("X");\n', "env.c")
        self.refuses(check_rooms.check_getenv, "src/aio/file.c", '/* file.c: x. */\nint a = setenv("X", "", 1);\n', "env.c")

    def test_writes(self):
        check = check_rooms.check_writes
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\nint a = pwrite(fd, b, 1, 0);\n", "ulimit -f")
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\nint a = ftruncate(fd, 1);\n", "ulimit -f")

    def test_threads(self):
        check = check_rooms.check_threads
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\n#pragma omp parallel\n", "workers.c")
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\nint a = pthread_create(0, 0, f, 0);\n", "threads.c")
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\n#include <omp.h>\n", "workers.c")

    def test_exits(self):
        check = check_rooms.check_exits
        for word in ("exit", "_exit", "abort", "assert"):
            self.refuses(check, "src/aio/file.c", f"/* file.c: x. */\nvoid f(void) {{ {word}(1); }}\n", "return a status")
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\n#include <assert.h>\n", "return a status")
        for call in ('printf("x")', "puts(x)", 'perror("x")'):
            self.refuses(check, "src/aio/file.c", f"/* file.c: x. */\nvoid f(void) {{ {call}; }}\n", "log.h")
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\nvoid f(void) { fputs(x, stderr); }\n", "log.h")

    def test_first_line(self):
        check = check_rooms.check_first_line
        for text in ("#include <x.h>\n", "/* other.c: x. */\n", "/* file.c */\n", "/* file.c: */\n", "\n/* file.c: x. */\n", ""):
            self.refuses(check, "src/aio/file.c", f"/* {check_rooms.LICENCE} */\n{text}", "what lives here")
        self.refuses(check, "tests/unit/x_test.cc", f"// {check_rooms.LICENCE}\n// y_test.cc: x.\n", "what lives here")
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\n", check_rooms.LICENCE)

    def test_unique_names(self):
        self.refuses(check_rooms.check_unique_names, "src/engine/aio.h", "/* aio.h: x. */\n", "exists already")

    def test_function_names(self):
        check = check_rooms.check_function_names
        for name in ("zoff_aio_other_go", "zoff_engine_file_go", "go", "zoff_file_go"):
            self.refuses(check, "src/aio/file.c", f"/* file.c: x. */\n\nzoff_status {name}(int a)\n{{\n}}\n", "zoff_aio_file_<verb>")
        self.refuses(check, "src/aio/file.c", "/* file.c: x. */\nvoid *wrong(int a,\n    int b)\n{\n}\n", "wrong")
        self.refuses(check, "src/cpu_adam/update.c", "/* update.c: x. */\nvoid zoff_cpu_adam_update_go(void)\n{\n}\n", "zoff_adam_update_")

    def test_left_open(self):
        for word in ("TODO", "FIXME", "XXX"):
            self.refuses(check_rooms.check_left_open, "src/aio/file.c", f"/* file.c: x. */\n/* {word}: later */\n", "left open")

    def test_machine_paths(self):
        check = check_rooms.check_machine_paths
        for path in ("work/main", "tmp/build", "home/me"):
            self.refuses(check, "docs/a.md", f"see /{path} for more\n", "one machine")
        self.assertEqual([], self.complaints(check, files={"docs/a.md": f"src/{'work'}/x, ${{a}}/tmp/x, /tmp may be a tmpfs\n"}))

    def test_binaries(self):
        self.refuses(check_rooms.check_binaries, "zoff-test-a/zoff-r0.states", "zoff\0states", "not a text")

    def test_room_readmes(self):
        check = check_rooms.check_room_readmes
        self.refuses(check, "src/aio/README.md", "# aio\n" + "x\n" * 20, "21 lines before")
        self.refuses(check, "src/aio/README.md", "# aio\n## Files\n" + "x\n" * 100, "102 lines; at most")
        found = self.complaints(check, files={"cmake/rooms.cmake": ROOMS + "zoff_room(lending NEEDS base)\n"})
        self.assertIn("src/lending/README.md:1: a room says what it decides", found[0])

    def test_build_flags(self):
        check = check_rooms.check_build_flags
        self.refuses(check, "cmake/isa.cmake", "add_compile_options(-march=native)\n", "one machine")
        self.refuses(check, "CMakeLists.txt", "project(x)\nset(F -ffast-math)\n", "other arithmetic")
        self.refuses(check, "bench/CMakeLists.txt", "set(step_race.c -Ofast)\n", "other arithmetic")

    def test_the_command_fails_and_says_where(self):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**GOOD, "src/aio/file.c": "/* file.c: x. */\nint a = abort();\n"}.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text)
            run = [sys.executable, check_rooms.__file__, root]
            result = subprocess.run(run, capture_output=True, text=True, check=False)
            self.assertEqual(1, result.returncode, result.stdout)
            self.assertIn("exits: src/aio/file.c:2: abort", result.stdout)
            os.remove(os.path.join(root, "src/aio/file.c"))
            self.assertEqual(0, subprocess.run(run, capture_output=True, check=False).returncode)
            self.assertEqual(2, subprocess.run(run[:2] + [os.path.join(root, "cmake")], capture_output=True, check=False).returncode)


class CheckReadme(unittest.TestCase):
    CODE = "int main(void)\n{\n    /* zoff: begin */\n    open(a,\n         b);\n    /* zoff: end */\n    x();\n    // zoff: begin\n    step();\n    // zoff: end\n}\n"

    def compare(self, recipe, code=None):
        readme = f"# zoff\n```c\nint other;\n```\n```c\n{check_readme.FIRST}\n{recipe}```\n"
        return check_readme.compare(readme, [("main.c", self.CODE if code is None else code)])

    def test_equal_but_for_layout(self):
        self.assertEqual([], self.compare("open(a,\n  b);\n\nstep();\n"))

    def test_differences(self):
        self.assertIn(f"in examples/gpt, not in {check_readme.PAGE}: step();", self.compare("open(a,\nb);\n"))
        self.assertIn(f"in {check_readme.PAGE}, not in examples/gpt: stop();", self.compare("open(a,\nb);\nstep();\nstop();\n"))
        self.assertIn("another order", self.compare("step();\nopen(a,\nb);\n")[0])

    def test_no_recipe_is_told_apart(self):
        self.assertIsNone(check_readme.compare("# zoff\n```c\nint other;\n```\n", [("main.c", self.CODE)]))

    def test_limits_of_readme(self):
        program = "```c\n// a.c\nint main(void)\n{\n}\n```\n"
        self.assertEqual([], list(check_readme.limits("# zoff\n" + program)))
        self.assertIn("121 lines", list(check_readme.limits(program + 115 * "x\n"))[0])
        self.assertIn("101 columns", list(check_readme.limits(program + 101 * "x" + "\n"))[0])
        self.assertIn("line 42", list(check_readme.limits(41 * "x\n" + program))[0])
        self.assertIn("26 lines", list(check_readme.limits(program.replace("{\n", 23 * "{\n")))[0])
        self.assertIn("no program", list(check_readme.limits("# zoff\n"))[0])

    def test_marks_come_in_pairs(self):
        self.assertIn("does not end", self.compare("a\n", "/* zoff: begin */\na\n")[0])
        self.assertIn("did not begin", self.compare("a\n", "a\n/* zoff: end */\n")[0])
        self.assertIn("begins inside", self.compare("a\n", "/* zoff: begin */\na\n/* zoff: begin */\n")[0])

    def test_no_code_and_too_much(self):
        self.assertIn("no lines between", self.compare("a\n", "a\n")[0])
        many = "".join(f"call({i});\n" for i in range(12))
        self.assertIn("12 lines", self.compare(many, f"/* zoff: begin */\n{many}/* zoff: end */\n")[0])


class Skipped(unittest.TestCase):
    XML = """<?xml version="1.0"?><testsuite>
<testcase name="a.b" status="run"><system-out>fine</system-out></testcase>
<testcase name="c.d" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>[ RUN ] d
/x/y_test.cc:12: Skipped
no io_uring here: Operation not permitted

[  SKIPPED ] d (0 ms)</system-out></testcase>
<testcase name="e" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>skipped: no README.md</system-out></testcase>
<testcase name="f" status="disabled"><system-out></system-out></testcase>
<testcase name="g.h" status="fail"><system-out>[ RUN ] h
/x/y_test.cc:12: Failure
Expected: true
</system-out></testcase>
<testcase name="i" status="fail"><system-out>no such file</system-out></testcase>
</testsuite>"""

    def test_reasons(self):
        self.assertEqual([("c.d", "no io_uring here: Operation not permitted"), ("e", "no README.md"), ("f", "disabled")],
                         skipped.read(self.XML))

    def test_complaints(self):
        self.assertEqual([("g.h", ["/x/y_test.cc:12: Failure", "Expected: true"]), ("i", ["no such file"])],
                         skipped.complaints(self.XML))


if __name__ == "__main__":
    unittest.main()
