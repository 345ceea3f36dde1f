# SPDX-License-Identifier: Apache-2.0
"""cpu_adam.py: the optimizers over states that torch owns have the bits of an engine, and the counts of torch."""
import copy
import io
import unittest

import torch

import zoff
from models import Gradients, copies, distance, equal, named, weights


class CPUAdam(unittest.TestCase):
    def test_it_has_the_bits_of_an_engine(self):
        for kind, engine in ((zoff.CPUAdamW, zoff.AdamW), (zoff.CPUAdam, zoff.Adam)):
            ours, theirs = weights(), weights()
            numbers, gradients = {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}, Gradients()
            optimizers = kind(ours, **numbers), engine(named(theirs), **numbers)
            for _ in range(20):
                gradients.give(ours, theirs)
                for optimizer in optimizers:
                    optimizer.step()
            self.assertTrue(equal(ours, theirs), kind)
            for key in ("exp_avg", "exp_avg_sq"):
                states = [optimizer.state_dict()["state"] for optimizer in optimizers]
                self.assertTrue(equal(*([state[p][key] for p in range(len(ours))] for state in states)), key)

    def test_each_parameter_counts_its_gradients(self):
        ours, theirs, gradients = weights(), weights(), Gradients()
        optimizers = zoff.CPUAdamW(ours, lr=1e-3), torch.optim.AdamW(theirs, lr=1e-3)
        for t in range(30):
            gradients.give(ours, theirs, without=[p for p in range(len(ours)) if (t * 7 + p * 5) % 3 == 0])
            version = ours[0]._version
            for optimizer in optimizers:
                optimizer.step()
            self.assertEqual(ours[0].grad is not None, ours[0]._version > version)
        self.assertLessEqual(distance(ours, theirs), 1e-6)
        for p, q in zip(ours, theirs):
            self.assertEqual(optimizers[0].state[p]["step"], optimizers[1].state[q]["step"])

    def test_states_go_on_with_the_same_bits_and_to_torch(self):
        ours, gradients = weights(), Gradients()
        optimizer = zoff.CPUAdamW(ours)
        for _ in range(5):
            gradients.give(ours)
            optimizer.step()
        again, theirs = copies(ours), copies(ours)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        others = zoff.CPUAdamW(again), torch.optim.AdamW(theirs)
        for other in others:
            file.seek(0)
            other.load_state_dict(torch.load(file))
        twin = copy.deepcopy(optimizer)
        for _ in range(5):
            gradients.give(ours, again, theirs, twin.param_groups[0]["params"])
            for each in (optimizer, twin, *others):
                each.step()
        self.assertTrue(equal(ours, again))
        self.assertTrue(equal(ours, twin.param_groups[0]["params"]))
        self.assertLessEqual(distance(ours, theirs), 1e-6)

    def test_layouts_follow_the_parameter(self):
        model = [torch.nn.Parameter(weights(shapes=((4, 3, 5, 5),))[0].detach().to(memory_format=torch.channels_last))]
        theirs, gradients = copies(model), Gradients()
        optimizers = zoff.CPUAdamW(model), torch.optim.AdamW(theirs)
        for t in range(4):
            gradients.give(model, theirs)
            model[0].grad = model[0].grad.contiguous()
            if t == 2:
                optimizers[0].state[model[0]]["exp_avg"] = optimizers[0].state[model[0]]["exp_avg"].contiguous()
            for optimizer in optimizers:
                optimizer.step()
        self.assertLessEqual(distance(model, theirs), 1e-6)

    def test_what_it_cannot_train_is_named_and_nothing_changes(self):
        good, half = weights()[0], torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        optimizer = zoff.CPUAdamW([good, half])
        good.grad, half.grad = torch.ones_like(good), torch.ones_like(half)
        before = good.detach().clone()
        with self.assertRaisesRegex(ValueError, r"zoff.CPUAdamW: a parameter of shape \(3,\) is torch.bfloat16.*zoff.AdamW has fp32 masters"):
            optimizer.step()
        self.assertTrue(torch.equal(before, good))
        with self.assertRaisesRegex(ValueError, "zoff.CPUAdam: .*lr"):
            zoff.CPUAdam([good], lr=-1)
        optimizer = zoff.CPUAdamW([{"params": [good]}, {"params": weights()[1:2]}])
        for group in optimizer.param_groups:
            group["params"][0].grad = torch.ones_like(group["params"][0])
        optimizer.param_groups[1]["lr"] = -1
        with self.assertRaisesRegex(ValueError, "zoff.CPUAdamW: .*lr"):
            optimizer.step()
        self.assertTrue(torch.equal(before, good))
