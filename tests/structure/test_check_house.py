#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_check_house.py: checks that check_house.py finds each kind of violation, and finds none in a correct tree."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_house
import check_rooms

ROOMS = 10


def part(number, body):
    return f"/* part. */\nint zoff_base_part{number}_run(void)\n{{\n{body}}}\n"


GOOD = {
    **{f"src/room{i}/part{i}.c": part(i, f"    return {i};\n") for i in range(ROOMS)},
    "src/engine/step.c": "/* step.c: may call others. */\nint zoff_engine_step_run(zoff_engine *e)\n{\n    return zoff_base_part0_run();\n}\n",
    "src/engine/engine.h": "/* engine.h: a door. */\ntypedef struct zoff_step {\n    int a, b;\n} zoff_step;\n",
}


class CheckHouse(unittest.TestCase):
    def found(self, **files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**GOOD, **files}.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text)
            return check_house.offenders(check_rooms.Tree(root))

    def test_a_tree_that_is_right(self):
        self.assertEqual([], self.found())

    def test_two_files_that_call_each_other(self):
        files = {f"src/room{i}/part{i}.c": part(i, f"    return zoff_base_part{3 - i}_run();\n") for i in (1, 2)}
        self.assertEqual(["cycle src/room1/part1.c", "cycle src/room2/part2.c"], self.found(**files))

    def test_three_files_in_a_ring_by_address(self):
        files = {f"src/room{i}/part{i}.c": part(i, "") + f"int (*other{i})(void) = zoff_base_part{(i + 1) % 3}_run;\n" for i in range(3)}
        self.assertEqual([f"cycle src/room{i}/part{i}.c" for i in range(3)], self.found(**files))

    def test_a_call_one_way_is_none(self):
        self.assertEqual([], self.found(**{"src/room1/part1.c": part(1, "    return zoff_base_part2_run();\n")}))

    def test_a_struct_that_knows_everything(self):
        text = "typedef struct zoff_all {\n" + "".join(f"    int a{i}, b{i}; /* both; */\n" for i in range(10)) + "    void (*call)(int x, int y);\n} zoff_all;\n"
        self.assertEqual(["struct src/engine/all.h zoff_all"], self.found(**{"src/engine/all.h": text}))
        self.assertEqual([], self.found(**{"src/engine/all.h": text.replace("zoff_all", "zoff_all_opts")}))
        self.assertEqual([], self.found(**{"src/engine/all.h": text.replace(", b3", "")}))

    def test_a_function_that_a_room_below_calls(self):
        files = {"src/room0/part0.h": "typedef struct zoff_wait {\n    int (*ask)(void *ctx);\n} zoff_wait;\n",
                 "src/room1/part1.c": part(1, "    return 1;\n") + "static int ask(void *ctx)\n{\n    return ctx != 0;\n}\n" +
                 "static int wait(void)\n{\n    zoff_wait w = {.ask = ask};\n    return w.ask(0);\n}\n"}
        self.assertEqual(["upward src/room1/part1.c zoff_wait.ask"], self.found(**files))
        own = {path.replace("room0/part0.h", "room1/part1.h"): text for path, text in files.items()}
        self.assertEqual([], self.found(**own))

    def test_a_function_over_a_page(self):
        def of(lines):
            return {"src/room0/part0.c": "static void long_one(int x)\n{\n" + "    x++;\n" * (lines - 2) + "}\n"}
        self.assertEqual([], self.found(**of(60)))
        self.assertEqual(["function src/room0/part0.c long_one"], self.found(**of(61)))

    def test_a_room_that_names_the_engine(self):
        self.assertEqual(["engine src/room0/part0.c"], self.found(**{"src/room0/part0.c": "int f(zoff_engine *e);\n"}))
        self.assertEqual([], self.found(**{"src/room0/part0.c": "/* zoff_engine */\nint f(zoff_engine_opts *e);\n"}))

    def test_a_question_about_a_mode(self):
        text = ("bool zoff_transfer_device_is(const zoff_transfer *t);\nstatic int f(zoff_transfer *t)\n{\n    return zoff_transfer_device_is(t)\n"
                "        ? 1 : zoff_transfer_device_is(t);\n}\n")
        self.assertEqual(["question src/transfer/ask.h zoff_transfer_device_is 2"], self.found(**{"src/transfer/ask.h": text}))

    def test_a_field_that_says_the_same(self):
        text = "static int f(zoff_transfer *t)\n{\n    return t->plan->replicated || t->route.reaches || x.plan.replicated; /* plan->replicated */\n}\n"
        self.assertEqual(["question src/transfer/ask.h reaches 1", "question src/transfer/ask.h replicated 2"], self.found(**{"src/transfer/ask.h": text}))
        self.assertEqual([], self.found(**{"src/zero/ask.h": text.replace("t->route.reaches", "0")}))
        self.assertEqual([], self.found(**{"src/transfer/route.c": text}))

    def test_a_question_about_muon(self):
        for text in ("if (h->optimizer == ZOFF_OPTIMIZER_MUON)", "x = ZOFF_OPTIMIZER_MUON != type;", "case ZOFF_OPTIMIZER_MUON:"):
            self.assertEqual(["muon src/model/ask.c"], self.found(**{"src/model/ask.c": text}))
            self.assertEqual([], self.found(**{"src/model/groups.c": text}))
        self.assertEqual([], self.found(**{"src/config/names.c": '{"Muon", ZOFF_OPTIMIZER_MUON}; /* == ZOFF_OPTIMIZER_MUON */'}))

    def test_what_is_listed(self):
        self.assertEqual([], list(check_house.compare(["a"], ["a"])))
        self.assertEqual(["a: not in tests/structure/house.txt; change the code"], list(check_house.compare(["a"], [])))
        self.assertEqual(["a: fixed; remove the line from tests/structure/house.txt"], list(check_house.compare([], ["a"])))


if __name__ == "__main__":
    unittest.main()
