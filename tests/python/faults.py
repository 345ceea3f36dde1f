# SPDX-License-Identifier: Apache-2.0
"""faults.py: the disk fails within step(), at each of its transfers in turn: what was changed, and what a program does then."""
import os
import resource
import subprocess
import time
import unittest

import torch

import zoff
from models import Folders, Gradients, copies, equal, named, weights

FAULT_FS = os.environ.get("ZOFF_FAULT_FS", "")
ERRORS = (5, zoff.Io), (28, zoff.NoSpace)
SHAPES = ((1 << 15,), (700,))


class Faulty(Folders, unittest.TestCase):
    """States in a file system that fails on demand (tests/fault/fuse)."""

    def setUp(self):
        if not os.path.exists(FAULT_FS):
            self.skipTest("the file system of tests/fault/fuse is not built: it needs libfuse3")
        if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
            self.skipTest("mounting by FUSE needs root and /dev/fuse")
        back, self.front = self.folder(), self.folder()
        self.process = subprocess.Popen([FAULT_FS, os.path.abspath(back), os.path.abspath(self.front)], stderr=subprocess.DEVNULL)
        self.addCleanup(self.unmount)
        for _ in range(500):
            if os.path.ismount(self.front):
                break
            time.sleep(0.01)
        self.assertTrue(os.path.ismount(self.front))

    def unmount(self):
        for _ in range(100):  # the kernel tears a ring down a little after its queue is closed
            if subprocess.run(["umount", self.front], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
            time.sleep(0.02)
        else:
            self.process.kill()
            subprocess.run(["umount", "-l", self.front], check=True)
        self.process.wait()

    def end(self, optimizer):
        self.fault("none")
        optimizer.close()

    def fault(self, text):
        with open(os.path.join(self.front, ".fault"), "w", encoding="ascii", buffering=1) as file:
            file.write(text)

    def pair(self, dtype, engines, **more):
        """A model with states in the files, and one in DRAM with the same gradients."""
        models, gradients = (weights(dtype, SHAPES), weights(dtype, SHAPES)), Gradients()
        optimizers = [zoff.AdamW(named(model), config=zoff.Config(threads=1, **its), **more)
                      for model, its in zip(models, ({"nvme": self.front, "host_memory": "256KiB"}, {}))]
        self.addCleanup(self.end, optimizers[0])
        for without in ((1,), ()) if engines == 2 else ((), ()):
            gradients.give(*models, without=without)
            for optimizer in optimizers:
                optimizer.step()
        self.assertEqual(engines, len(optimizers[0]._cohorts))
        return models, optimizers, gradients

    def half_done(self, optimizer):
        for call in (optimizer.step, optimizer.state_dict, optimizer.pull):
            with self.assertRaisesRegex(RuntimeError, r"the last step failed and is half done: call retry\(\), or load_state_dict\(\)"):
                call()

    def test_each_transfer_of_a_step_fails_and_retry_ends_the_step(self):
        for number, (dtype, engines, more) in enumerate(((torch.float32, 1, {}), (torch.bfloat16, 2, {"clip_norm": 1.0}))):
            (ours, theirs), (first, second), gradients = self.pair(dtype, engines, **more)
            for transfer in ("read", "write"):
                failures = 0
                for n in range(1, 9):
                    error, kind = ERRORS[(n + number) % 2]
                    gradients.give(ours, theirs)
                    second.step()
                    self.fault(f"{transfer} {n} fail {error}")
                    try:
                        first.step()
                    except kind as raised:
                        failures += 1
                        self.assertIn(os.path.basename(self.front), str(raised))
                        self.half_done(first)
                        self.fault(f"{transfer} 1+ fail {error}")
                        with self.assertRaisesRegex(kind, os.path.basename(self.front)):
                            first.retry()
                        self.fault("none")
                        first.retry()
                    self.fault("none")
                    self.assertTrue(equal(ours, theirs), (transfer, n))
                self.assertGreater(failures, 2, transfer)
            self.assertEqual(first.last.t, second.last.t)

    def test_a_step_that_fails_before_anything_is_changed_is_called_again(self):
        (ours, theirs), (first, second), gradients = self.pair(torch.float32, 1, state="tensors")
        unchanged = 0
        for n in range(8):
            first.state_dict()  # the last states are in DRAM, so the step begins with reads, but some may have come by then
            gradients.give(ours, theirs)
            second.step()
            before, (error, kind) = copies(ours), ERRORS[n % 2]
            self.fault(f"read 1+ fail {error}")
            with self.assertRaises(kind) as raised:
                first.step()
            if "before anything was changed" in str(raised.exception):
                unchanged += 1
                self.assertTrue(equal(ours, before))
                self.fault("none")
                first.step()
            else:
                self.half_done(first)
                self.fault("none")
                first.retry()
            self.assertTrue(equal(ours, theirs))
            self.assertEqual(first.last.t, second.last.t)
        self.assertGreater(unchanged, 0)

    def test_states_that_are_loaded_replace_those_of_a_failed_step(self):
        (ours, theirs), (first, second), gradients = self.pair(torch.bfloat16, 1, state="tensors")
        saved, weights_then = first.state_dict(), copies(ours)
        Gradients(seed=7).give(ours)
        self.fault("write 1 fail 5")
        self.assertRaises(zoff.Io, first.step)
        self.half_done(first)
        self.fault("none")
        first.load_state_dict(saved)
        self.assertTrue(equal(ours, weights_then))
        for _ in range(3):
            gradients.give(ours, theirs)
            first.step()
            second.step()
        self.assertTrue(equal(ours, theirs))

    def test_a_step_behind_the_passes_fails_where_it_is_waited_for(self):
        models, optimizers = [], []
        for its in ({"nvme": self.front, "host_memory": "256KiB"}, {}):
            torch.manual_seed(0)
            models.append(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8)))
            overlap = {"overlap": models[-1]} if its else {}
            optimizers.append(zoff.AdamW(models[-1].named_parameters(), config=zoff.Config(threads=1, **its), **overlap))
        self.addCleanup(self.end, optimizers[0])
        x, failures = torch.randn(16, 64, generator=torch.Generator().manual_seed(1)), 0
        for n in range(9):
            for model, optimizer in zip(models, optimizers):
                optimizer.zero_grad()
                (model(x) - x[:, :8]).square().mean().backward()
                if n and model is models[0]:
                    self.fault(f"write {n} fail 5")
                optimizer.step()
                try:
                    model(x) if n % 2 else optimizer.wait()
                except zoff.Io:
                    self.assertIs(model, models[0])
                    failures += 1
                    self.half_done(optimizer)
                    optimizer.retry()
                self.fault("none")
            self.assertTrue(equal(models[0].parameters(), models[1].parameters()), n)
        self.assertGreater(failures, 2)

    def test_a_folder_that_cannot_be_mapped_has_states_in_tensors(self):
        _, (optimizer, _), _ = self.pair(torch.float32, 1)
        with self.assertRaisesRegex(RuntimeError, f"a file in .*{os.path.basename(self.front)} cannot be mapped .*: use state=\"tensors\""):
            optimizer.state_dict()


class Full(Folders, unittest.TestCase):
    def test_a_full_disk_is_told_before_anything_is_changed(self):
        model, gradients = weights(shapes=SHAPES), Gradients()
        optimizer = zoff.AdamW(named(model), config=zoff.Config(nvme=self.folder(), threads=1))
        before, limits = copies(model), resource.getrlimit(resource.RLIMIT_FSIZE)
        gradients.give(model)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))  # files cannot grow
        try:
            with self.assertRaisesRegex(zoff.NoSpace, "zoff-test-"):
                optimizer.step()
            self.assertTrue(equal(model, before))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        optimizer.step()
        self.assertEqual(1, optimizer.last.t)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        try:
            with self.assertRaises(OSError):
                optimizer.state_dict()  # is mapped from files
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEqual(1, optimizer.state_dict()["state"][0]["step"])
