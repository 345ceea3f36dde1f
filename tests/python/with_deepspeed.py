# SPDX-License-Identifier: Apache-2.0
"""with_deepspeed.py: zoff.deepspeed.CPUAdam takes the place of DeepSpeedCPUAdam, alone and under ZeRO-Offload."""
import copy
import io
import os
import sys
import unittest
from unittest import mock

import torch

import zoff
from adapters import needs
from models import Folders, Gradients, copies, distance, equal, weights

ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "DS_ACCELERATOR": "cpu",
         "CUDA_VISIBLE_DEVICES": "", "TORCH_EXTENSIONS_DIR": os.path.join(sys.prefix, "torch-extensions"),
         "PATH": os.pathsep.join((os.path.join(sys.prefix, "bin"), os.environ["PATH"]))}


class DeepSpeed(Folders, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        needs("deepspeed")
        environment = mock.patch.dict(os.environ, ALONE)
        environment.start()
        cls.addClassCleanup(environment.stop)
        import deepspeed
        import zoff.deepspeed

        deepspeed.utils.logger.setLevel("ERROR")
        cls.initialize, cls.theirs, cls.ours = staticmethod(deepspeed.initialize), deepspeed.ops.adam.DeepSpeedCPUAdam, zoff.deepspeed.CPUAdam
        cls.builder = deepspeed.ops.adam.cpu_adam.CPUAdamBuilder

    @classmethod
    def tearDownClass(cls):
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def both(self):
        """Their class compiles an extension."""
        try:
            self.theirs([torch.nn.Parameter(torch.ones(1))])
        except RuntimeError as error:
            self.skipTest(f"DeepSpeedCPUAdam: {error}")
        return self.ours, self.theirs

    def engine(self, kind, stage, bf16):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 8))
        zero = {"stage": stage, "offload_optimizer": {"device": "cpu"}} if stage else {"stage": 0}
        config = {"train_micro_batch_size_per_gpu": 16, "gradient_clipping": 1.0, "zero_optimization": zero, "bf16": {"enabled": bf16}}
        return self.initialize(model=model, optimizer=kind(model.parameters(), lr=1e-3, weight_decay=0.01), config=config)[0]

    @staticmethod
    def train(engine, first, last):
        """The losses of steps."""
        losses = []
        for step in range(first, last):
            x = torch.randn(16, 64, generator=torch.Generator().manual_seed(step)).to(next(engine.parameters()).dtype)
            loss = (engine(x) - x[:, :8].sin()).float().square().mean()
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        return losses

    def near(self, one, other, most):
        self.assertEqual(len(one), len(other))
        self.assertLessEqual(max(abs(a - b) for a, b in zip(one, other)), most)

    def test_zero_trains_as_with_deepspeeds_own(self):
        kinds = self.both()
        for stage in (0, 1, 2, 3):
            for bf16, most in ((False, 1e-6), (True, 1e-3)):
                with self.subTest(stage=stage, bf16=bf16):
                    engines = [self.engine(kind, stage, bf16) for kind in kinds]
                    ours, theirs = (self.train(engine, 0, 20) for engine in engines)
                    self.assertLess(ours[-1], 0.7 * ours[0])
                    self.near(ours, theirs, most)
                    if stage < 3:  # which cuts weights
                        self.assertLessEqual(distance(*(list(engine.module.parameters()) for engine in engines)), most)

    def test_checkpoints_of_zero_go_both_ways(self):
        kinds = self.both()
        for stage in (0, 2, 3):
            for first, second in (kinds, kinds[::-1]):
                with self.subTest(stage=stage, first=first):
                    folder, engine = self.folder(), self.engine(first, stage, False)
                    self.train(engine, 0, 5)
                    engine.save_checkpoint(folder)
                    again = self.engine(second, stage, False)
                    again.load_checkpoint(folder)
                    self.near(self.train(engine, 5, 15), self.train(again, 5, 15), 1e-6)

    def test_each_argument_does_the_same(self):
        kinds = self.both()
        for more in ({}, {"lr": 1e-2, "betas": (0.8, 0.9), "eps": 1e-6}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "adamw_mode": False},
                     {"bias_correction": False}):
            for dtype, most in ((torch.float32, 1e-6), (torch.bfloat16, 2e-3), (torch.float16, 1e-3)):
                with self.subTest(more=more, dtype=dtype):
                    models, gradients = (weights(dtype), weights(dtype)), Gradients()
                    optimizers = [kind(model, **more) for kind, model in zip(kinds, models)]
                    for step in range(10):
                        gradients.give(*models, without=(step % 4,))
                        for optimizer in optimizers:
                            optimizer.step()
                    self.assertLessEqual(distance(*models), most)
                    first, second = ({key: {name: getattr(value, "dtype", value) for name, value in its.items()}
                                      for key, its in optimizer.state_dict()["state"].items()} for optimizer in optimizers)
                    self.assertEqual(first, second)
                    self.assertEqual(*(optimizer.state_dict()["param_groups"] for optimizer in optimizers))

    def test_states_go_both_ways(self):
        kinds = self.both()
        for first, second in (kinds, kinds[::-1]):
            model, gradients = weights(), Gradients()
            optimizer = first(model)
            for _ in range(5):
                gradients.give(model)
                optimizer.step()
            other = copies(model)
            again = second(other)
            again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            for _ in range(5):
                gradients.give(model, other)
                optimizer.step()
                again.step()
            self.assertLessEqual(distance(model, other), 1e-6)

    def test_moments_of_16_bit_weights_are_loaded_and_copied_with_their_bits(self):
        model, gradients = weights(torch.bfloat16), Gradients()
        optimizer = self.ours(model, weight_decay=0.5, adamw_mode=False)
        gradients.give(model)
        optimizer.step()
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        other, twin = copies(model), copy.deepcopy(optimizer)
        again = self.ours(other, weight_decay=0.5, adamw_mode=False)
        again.load_state_dict(torch.load(file))
        gradients.give(model, other, twin.param_groups[0]["params"])
        for each in (optimizer, again, twin):
            each.step()
        self.assertTrue(equal(model, other))
        self.assertTrue(equal(model, twin.param_groups[0]["params"]))
        for p, q in zip(model, other):
            self.assertTrue(equal(*([state[key] for key in ("exp_avg", "exp_avg_sq")] for state in (optimizer.state[p], again.state[q]))))

    def test_it_compiles_nothing_and_says_what_it_refuses(self):
        with mock.patch.object(self.builder, "load", side_effect=AssertionError("compiled")):
            self.assertIsInstance(self.ours(weights()), self.theirs)
        for kind, words, more in ((ValueError, "zoff.deepspeed.CPUAdam: .*lr is -1", {"lr": -1}), (RuntimeError, "AMSGrad", {"amsgrad": True}),
                                  (ValueError, "fp32_optimizer_states is False; leave it out", {"fp32_optimizer_states": False})):
            with self.assertRaisesRegex(kind, words):
                self.ours(weights(), **more)
        param = torch.nn.Parameter(torch.ones(3, device="meta"))
        param.grad = torch.ones_like(param)
        with self.assertRaisesRegex(ValueError, r'on meta; it trains dense float32, .* so ZeRO needs "offload_optimizer": {"device": "cpu"}'):
            self.ours([param]).step()
        param = weights()[0]
        param.grad = torch.ones_like(param)
        with self.assertRaisesRegex(AttributeError, r"has no step_subgroup\(\).*use DeepSpeedCPUAdam for SuperOffload"):
            self.ours([param]).step_subgroup(0)
