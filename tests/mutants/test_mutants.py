#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_mutants.py: tests mutants.py without a build. Each operator must find all of its places and no others, the real
sources must have enough of each, and a draw must depend only on its seed."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mutants  # noqa: E402
import operators  # noqa: E402

SAMPLE = """/* if (a < b) zoff_comm_wait(c); */
#define LIMIT (a < b)
static zoff_status step(zoff_comm *comm, size_t first, size_t count)
{
    const char *words = "count - first < 1";
    ZOFF_FAIL_IF(!comm || f(first, count), ZOFF_ERR_INVALID, "%s", words);
    ZOFF_TRY(zoff_comm_wait(comm, &work));
    ZOFF_TRY(flush_drive(s, file));
    for (size_t i = 0; i < count; i++)
        use(comm->rank, i + 1);
    size_t left = count - first;
    status = copy(first, count);
    zoff_accel_event_await(e->device.down, done);
    return zoff_comm_start(comm, ZOFF_COMM_STEP);
}
"""


def changes(operator):
    return {(SAMPLE[start:end], text) for start, end, text in operator(SAMPLE, operators.mask(SAMPLE))}


class Operators(unittest.TestCase):
    def test_each_finds_its_places(self):
        wait, flush = "ZOFF_TRY(zoff_comm_wait(comm, &work))", "ZOFF_TRY(flush_drive(s, file))"
        wanted = {
            operators.drop_wait: {(wait, "(void)0"), ("zoff_accel_event_await(e->device.down, done)", "(void)0")},
            operators.drop_flush: {(flush, "(void)0"), ("flush_drive(s, file)", "(0)")},
            operators.drop_check: {("!comm || f(first, count)", "0 && (!comm || f(first, count))")},
            operators.ignore_status: {(wait, "(void)(zoff_comm_wait(comm, &work))"), (flush, "(void)(flush_drive(s, file))"),
                                      ("status = copy(first, count)", "(void)copy(first, count)")},
            operators.off_by_one: {("<", "<="), (" + 1", "")},
            operators.swap_ranks: {("comm->rank", "(comm->size - 1 - comm->rank)")},
            operators.swap_streams: {("ZOFF_COMM_STEP", "ZOFF_COMM_REDUCE"), ("down", "up")},
        }
        for operator, want in wanted.items():
            self.assertEqual(changes(operator), want, operator.__name__)
        swaps = changes(operators.swap_operands)
        self.assertLessEqual({("count - first", "first - count"), ("first, count", "count, first"), ("s, file", "file, s")}, swaps)

    def test_comments_and_literals_stay(self):
        for mutant in operators.mutants_of("src/x/sample.c", SAMPLE):
            changed = mutant.apply(SAMPLE)
            self.assertEqual(SAMPLE.split("static", 1)[0], changed.split("static", 1)[0], mutant.describe())
            self.assertIn('"count - first < 1"', changed)
            self.assertNotEqual(SAMPLE, changed)

    def test_names_survive_lines_above(self):
        names = {m.name for m in operators.mutants_of("src/x/sample.c", SAMPLE)}
        self.assertEqual(names, {m.name for m in operators.mutants_of("src/x/sample.c", "\n/* new */\n" + SAMPLE)})


class Sources(unittest.TestCase):
    def setUp(self):
        self.all = mutants.all_mutants(mutants.ROOT)

    def test_there_are_enough_of_each(self):
        self.assertGreaterEqual(len(self.all), 400)
        self.assertEqual(len(self.all), len({m.name for m in self.all}), "names are unique")
        for operator in operators.OPERATORS:
            self.assertGreaterEqual(sum(m.operator == operator.__name__ for m in self.all), 10, operator.__name__)
        rooms = {mutants.room_of(m.path) for m in self.all}
        self.assertLessEqual({"base", "cpu_adam", "aio", "accel", "comm", "config", "zero", "offload", "engine", "cuda"}, rooms)

    def test_a_draw_goes_by_its_seed(self):
        one, again, other = ([m.name for m in mutants.drawn(self.all, seed)[:40]] for seed in (1, 1, 2))
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)
        self.assertEqual(len(operators.OPERATORS), len({name.split("-")[1] for name in one}))


if __name__ == "__main__":
    unittest.main()
