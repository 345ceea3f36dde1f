# SPDX-License-Identifier: Apache-2.0
"""messages.py: lines of the library arrive in Python's logging, and the opening of files shows a bar."""
import os
import signal
import subprocess
import sys
import types
import unittest
from unittest import mock

import torch

import zoff
from models import Folders, named

PROGRAM = """
import logging, sys, torch, zoff
if sys.argv[1] == "configured":
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s: %(message)s", stream=sys.stdout)
w = torch.nn.Parameter(torch.ones(8))
optimizer = zoff.AdamW([("w", w)], lr=0.1, clip_norm=1.0, config=zoff.Config({"steps_per_print": 1}))
for value in (1.0, float("inf")):
    w.grad = torch.full((8,), value)
    optimizer.step()
optimizer.param_groups[0].update(lr=0.05, betas=(0.8, 0.99))  # as a schedule does
optimizer.save(sys.argv[2])
optimizer.param_groups[0]["lr"] = 0.5
optimizer.load(sys.argv[2])
assert optimizer.param_groups[0]["lr"] == 0.05
"""


class Logging(Folders, unittest.TestCase):
    def run_program(self, how, **more):
        environment = {key: value for key, value in os.environ.items() if key != "ZOFF_LOG_LEVEL"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run([sys.executable, "-c", PROGRAM, how, self.folder()], env={**environment, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=True)
        return done.stdout, done.stderr

    def test_lines_go_to_the_loggers_of_rooms(self):
        out, _ = self.run_program("configured")
        self.assertRegex(out, r"(?m)^zoff\.engine INFO: step 1\b")
        self.assertRegex(out, r"INFO: AdamW lr 0.1, decay 0.01, clip 1,")
        self.assertRegex(out, r"INFO: training: optimizer.type \"AdamW\" \(api\), lr 0.1 \(api\), .*gradient_clipping 1 \(api\)")
        self.assertRegex(out, r"(?m)^zoff\.engine WARNING: step 2 skipped")

    def test_warnings_are_seen_where_nothing_is_configured(self):
        out, err = self.run_program("not")
        self.assertEqual("", out)
        self.assertIn("step 2 skipped", err)
        self.assertNotIn("hyper-parameters", err)  # load() sets them
        self.assertNotIn("INFO", err)

    def test_the_level_of_the_environment_sends_them_to_stderr(self):
        out, err = self.run_program("configured", ZOFF_LOG_LEVEL="info")
        self.assertEqual("", out)
        self.assertRegex(err, r"zoff info engine: step 1\b")


class Bar:
    """A bar of tqdm that notes what it is told."""
    made, ends_at = [], None

    def __init__(self, desc, total, **_):
        self.desc, self.total, self.n, self.is_closed = desc, total, 0, False
        Bar.made.append(self)

    def update(self, count):
        self.n += count
        if Bar.ends_at is not None and self.n >= Bar.ends_at:
            raise KeyboardInterrupt

    def close(self):
        self.is_closed = True


class Progress(Folders, unittest.TestCase):
    def open(self):
        params = [torch.nn.Parameter(torch.zeros(9 << 20))]
        config = zoff.Config(nvme=self.folder(), host_memory="8MiB", persist=True)
        with zoff.AdamW(named(params), config=config) as optimizer:
            kept = {name: sys.modules.pop(name, None) for name in ("tqdm", "tqdm.auto")}
            sys.modules.update({"tqdm": types.ModuleType("tqdm"), "tqdm.auto": types.SimpleNamespace(tqdm=Bar)})
            try:
                optimizer.open()
            finally:
                for name, module in kept.items():
                    del sys.modules[name]
                    sys.modules.update({name: module} if module else {})

    def test_a_bar_shows_the_bytes_that_are_written(self):
        Bar.made, Bar.ends_at = [], None
        self.open()
        self.assertEqual(["zoff: write states"], [bar.desc for bar in Bar.made])
        self.assertTrue(Bar.made[0].is_closed)
        self.assertGreater(Bar.made[0].n, 64 << 20)
        self.assertLessEqual(Bar.made[0].n, Bar.made[0].total)

    def test_an_interrupt_ends_the_opening(self):
        Bar.made, Bar.ends_at = [], 1
        with self.assertRaises(KeyboardInterrupt):
            self.open()
        self.assertTrue(Bar.made[0].is_closed)

    def test_an_interrupt_ends_the_opening_without_a_bar(self):
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with mock.patch.dict(sys.modules, {"tqdm": None, "tqdm.auto": None}), self.assertRaises(KeyboardInterrupt):
                with zoff.AdamW(named([torch.nn.Parameter(torch.zeros(9 << 20))]), config=self.config("nvme", persist=True)) as optimizer:
                    signal.setitimer(signal.ITIMER_REAL, 0.005)
                    optimizer.open()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        self.assertEqual([], optimizer._cohorts)
