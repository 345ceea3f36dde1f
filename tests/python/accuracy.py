# SPDX-License-Identifier: Apache-2.0
"""accuracy.py: given gradients: the distance to float64 and to PyTorch, and the bits of a program in C."""
import json
import os
import struct
import subprocess
import unittest

import torch

import zoff
from models import SHAPES, TORCH, Folders, Gradients, apart, copies, distance, equal, named, weights

STEPS = 200
KINDS = (
    (zoff.AdamW, {"lr": 1e-3}),
    (zoff.AdamW, {"lr": 1e-3, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    (zoff.Adam, {"lr": 1e-3, "weight_decay": 0.01}),
    (zoff.Adagrad, {"lr": 1e-2, "lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    (zoff.SGD, {"lr": 1e-3, "momentum": 0.9, "dampening": 0.1}),
    (zoff.SGD, {"lr": 1e-3, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (zoff.SGD, {"lr": 1e-3}),
)


class Accuracy(Folders, unittest.TestCase):
    def test_zoff_is_nearer_to_float64_than_torch(self):
        for kind, numbers in KINDS:
            ours = weights()
            theirs, exact = copies(ours), copies(ours, torch.float64)
            optimizers = [kind(named(ours), **numbers), TORCH[kind](theirs, **numbers), TORCH[kind](exact, **numbers)]
            gradients = Gradients()
            for _ in range(STEPS):
                gradients.give(ours, theirs, exact)
                for optimizer in optimizers:
                    optimizer.step()
            away, torchs = distance(ours, exact), distance(theirs, exact)
            between = apart(ours, theirs) / apart(theirs, exact)
            print(f"{kind.__name__} {numbers}: zoff {away:.2e}, torch {torchs:.2e}, between them {between:.2f} of torch's error")
            with self.subTest(kind=kind.__name__, numbers=numbers):
                self.assertLessEqual(away, 5e-7)
                self.assertLessEqual(between, 1.25)
                if kind is zoff.AdamW:  # torch rounds 1 - lr * weight_decay in each step
                    self.assertLessEqual(away, torchs / 2)

    def test_lion_is_that_of_its_paper(self):
        ours = weights()
        exact, moments = copies(ours, torch.float64), [torch.zeros_like(p, dtype=torch.float64) for p in ours]
        optimizer = zoff.Lion(named(ours), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
        gradients = Gradients()
        for _ in range(STEPS):
            gradients.give(ours, exact)
            optimizer.step()
            with torch.no_grad():
                for p, m in zip(exact, moments):
                    p -= 1e-3 * ((0.9 * m + 0.1 * p.grad).sign() + 0.1 * p)
                    m.mul_(0.99).add_(p.grad, alpha=0.01)
        self.assertLessEqual(distance(ours, exact), 5e-6)

    def by_c(self, model, config, gradients, steps):
        """Weights after the steps of a program in C."""
        folder = self.folder()
        paths = [os.path.join(folder, name) for name in ("config.json", "in", "out")]
        with open(paths[0], "w", encoding="utf-8") as file:
            json.dump(config, file)
        code = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}[model[0].dtype]
        raw = lambda tensor: tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        with open(paths[1], "wb") as file:
            file.write(struct.pack(f"{4 + len(model)}Q", len(model), steps, model[0].element_size(), code, *(p.numel() for p in model)))
            file.write(b"".join(map(raw, model)))
            for _ in range(steps):
                gradients.give(model)
                file.write(b"".join(raw(p.grad) for p in model))
        subprocess.run([os.environ["ZOFF_C_SIDE"], *paths], check=True)
        with open(paths[2], "rb") as file:
            data = file.read()
        after, at = [], 0
        for p in model:
            bytes_ = p.numel() * p.element_size()
            after.append(torch.frombuffer(bytearray(data[at:at + bytes_]), dtype=p.dtype).view(p.shape))
            at += bytes_
        return after

    def test_the_bits_are_those_of_a_program_in_c(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for where in ("dram", "nvme"):
                for clip in (0, 0.5):
                    with self.subTest(dtype=dtype, where=where, clip=clip):
                        ours = weights(dtype)
                        config = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}}, "gradient_clipping": clip}
                        theirs = self.by_c(copies(ours), config, Gradients(), 30)
                        optimizer, gradients = zoff.AdamW(named(ours), lr=1e-3, config=self.config(where), clip_norm=clip or None), Gradients()
                        for _ in range(30):
                            gradients.give(ours)
                            optimizer.step()
                        self.assertTrue(equal(ours, theirs))
                        self.assertEqual(len(SHAPES), len(ours))
