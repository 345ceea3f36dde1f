# SPDX-License-Identifier: Apache-2.0
"""memory.py: DRAM that zoff takes beside weights and gradients, for the 124 million parameters of GPT-2 in bf16 with states in
files."""
import gc
import re
import threading
import unittest

import torch

import zoff
from models import Folders, named

MIB = 1 << 20
BUDGET = 64 * MIB
LAYER = ((768,), (768,), (768, 2304), (2304,), (768, 768), (768,), (768,), (768,), (768, 3072), (3072,), (3072, 768), (768,))
SHAPES = ((50257, 768), (1024, 768), *LAYER * 12, (768,), (768,))


def status(name):
    with open("/proc/self/status", encoding="ascii") as file:
        return int(re.search(rf"{name}:\s+(\d+) kB", file.read()).group(1)) << 10


def forget_peak():
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


class Anonymous:
    """The most anonymous memory, of which the kernel keeps no peak: read about each millisecond."""

    def __enter__(self):
        self.most, self.ends = status("RssAnon"), threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self):
        while not self.ends.wait(1e-3):
            self.most = max(self.most, status("RssAnon"))

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()


class Memory(Folders, unittest.TestCase):
    def test_steps_keep_the_budget_and_a_mapped_state_takes_no_memory(self):
        torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))])  # any first optimizer imports 150 MiB of torch
        model = [torch.nn.Parameter(torch.full(shape, 0.02, dtype=torch.bfloat16)) for shape in SHAPES]
        for param in model:
            param.grad = torch.full_like(param, 1e-3)
        self.assertEqual(124439808, sum(param.numel() for param in model))
        for clip in (None, 1.0):
            gc.collect()
            forget_peak()
            before = status("VmRSS")
            optimizer = zoff.AdamW(named(model), config=zoff.Config(nvme=self.folder(), host_memory=BUDGET), clip_norm=clip)
            for _ in range(4):
                optimizer.step()
            steps, without = status("VmHWM") - before, status("RssAnon")
            with Anonymous() as anonymous:
                state = optimizer.state_dict()
            mapped = anonymous.most - without
            print(f"clip {clip}: {steps / MIB:.1f} MiB at the peak of 4 steps, {mapped / MIB:.1f} MiB anonymous for a mapped state")
            self.assertLessEqual(steps, BUDGET + 16 * MIB)
            self.assertLessEqual(mapped, 16 * MIB)
            self.assertEqual({"step", "exp_avg", "exp_avg_sq", "master"}, set(state["state"][0]))
            del state
            optimizer.close()
