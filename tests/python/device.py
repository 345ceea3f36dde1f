# SPDX-License-Identifier: Apache-2.0
"""device.py: parameters on a device have the bits of those on the CPU.

The device is the emulated one, whose memory is ordinary memory and whose streams are threads. So tensors of the CPU stand for its
tensors, and a copy that nobody waits for gives other bits."""
import unittest
from ctypes import byref, c_void_p
from unittest import mock

import torch

import zoff
from models import Folders, Gradients, copies, equal, named, weights
from overlapped import AHEAD, make
from zoff import _api as api
from zoff import cohort
from zoff._load import lib


class Emulated(cohort.Place):
    def __init__(self, stream):
        self.accel, self.stream = c_void_p(), stream
        assert lib.zoff_accel_open(b"emulated", 0, byref(self.accel)) == 0

    def finish(self):
        assert lib.zoff_accel_stream_wait(self.accel, api.ZOFF_STREAM_DEFAULT) == 0


class Device(Folders, unittest.TestCase):
    def on_device(self, stream=api.ZOFF_STREAM_DEFAULT):
        return mock.patch.dict(cohort._places, {torch.device("cpu"): Emulated(stream)})

    def test_steps_have_the_same_bits(self):
        for where in ("dram", "nvme"):
            for dtype, settings in ((torch.float32, {}), (torch.bfloat16, {}), (torch.bfloat16, {"master": "split", "moments": "bf16"})):
                with self.subTest(where=where, dtype=dtype, **settings):
                    ours = weights(dtype)
                    theirs, gradients, optimizers = copies(ours), Gradients(), []
                    for params, place in ((ours, self.on_device()), (theirs, mock.MagicMock())):
                        config = self.config(where)
                        for key, value in settings.items():
                            config.set("zoff." + key, value)
                        optimizers.append((zoff.AdamW(named(params), lr=1e-2, config=config, clip_norm=1.0), place))
                    for step in range(12):
                        gradients.give(ours, theirs, without=(1,) if step < 3 else ())
                        for params, (optimizer, place) in zip((ours, theirs), optimizers):
                            with place:
                                optimizer.step()
                            if step == 5:  # autograd counts this change
                                with torch.no_grad():
                                    params[0].mul_(0.5)
                            if step == 7:  # and not this one
                                params[0].data = params[0].data.clone()
                        self.assertTrue(equal(ours, theirs), step)
                    first, second = (optimizer.state_dict()["state"] for optimizer, _ in optimizers)
                    for key, states in first.items():
                        self.assertTrue(equal(states.values(), second[key].values()))
                        self.assertEqual({"cpu"}, {value.device.type for value in states.values()})
                    self.assertEqual("emulated", self.backend(optimizers[0][0]))
                    folder = self.folder()
                    optimizers[0][0].save(folder)
                    ours[2].data.zero_()
                    with self.on_device():
                        optimizers[0][0].load(folder)
                    self.assertTrue(equal(ours, theirs))

    @unittest.skipUnless(torch.cuda.is_available(), "no GPU")
    def test_a_gpu_has_the_same_bits(self):
        for where in ("dram", "nvme"):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(where=where, dtype=dtype):
                    theirs, gradients, model = weights(dtype), Gradients(), torch.nn.Module()
                    ours = [torch.nn.Parameter(param.detach().cuda()) for param in theirs]
                    model.params = torch.nn.ParameterList(ours)
                    config = self.config(where)
                    for key, value in AHEAD:
                        config.set(key, value)
                    optimizers = [zoff.AdamW(named(ours), lr=1e-2, config=config, clip_norm=1.0, overlap=model),
                                  zoff.AdamW(named(theirs), lr=1e-2, config=self.config(where), clip_norm=1.0)]
                    for _ in range(12):
                        gradients.give(theirs)
                        optimizers[0].zero_grad()
                        sum((param * grad.grad.cuda()).sum() for param, grad in zip(ours, theirs)).backward()
                        for optimizer in optimizers:
                            optimizer.step()
                        optimizers[0].wait()
                        self.assertTrue(equal((param.cpu() for param in ours), theirs))

    @staticmethod
    def backend(optimizer):
        info = api.zoff_accel_info()
        lib.zoff_accel_get_info(optimizer._cohorts[0].place.accel, byref(info))
        return info.backend.decode()

    def test_hidden_steps_have_the_same_bits(self):
        found = []
        for place in (self.on_device(None), mock.MagicMock()):  # without a stream: tensors of the CPU are read at once
            with place:
                model, losses, chance = make(), [], torch.Generator().manual_seed(2)
                config = self.config("nvme")
                for key, value in AHEAD:
                    config.set(key, value)
                optimizer = zoff.AdamW(model.named_parameters(), lr=1e-2, config=config, clip_norm=0.5, overlap=model)
                for _ in range(15):
                    x = torch.randn(16, 8, generator=chance)
                    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    losses.append(float(loss.detach()))
                optimizer.wait()
                found.append((losses, list(model.parameters()), optimizer))
        self.assertEqual(found[0][0], found[1][0])
        self.assertTrue(equal(found[0][1], found[1][1]))

    def test_parameters_on_two_devices_are_named(self):
        one, other = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        one.grad, other.grad = torch.ones(2), torch.ones(2)
        with mock.patch.object(cohort, "Member", wraps=cohort.Member) as member, mock.patch("zoff.optim.Member", member):
            def elsewhere(param, name, *more):
                made = member._mock_wraps(param, name, *more)
                made.device = torch.device("cuda:1") if name == "b" else made.device
                return made
            member.side_effect = elsewhere
            with self.assertRaisesRegex(ValueError, "parameter a is on cpu, and b on cuda:1; make an optimizer for those of each device"):
                zoff.AdamW([("a", one), ("b", other)]).step()

    def test_a_device_that_is_missing_is_told(self):
        with self.assertRaisesRegex(zoff.Error, "cuda"):
            cohort.Gpu(torch.device("cuda:7"))
