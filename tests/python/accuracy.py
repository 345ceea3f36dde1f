# SPDX-License-Identifier: Apache-2.0
"""accuracy.py: the distance to float64 and to PyTorch, and the bits of a program in C, for given gradients; and the losses of a small GPT
that Muon trains."""
import json
import os
import re
import struct
import subprocess
import unittest
from ctypes import byref

import torch

import zoff
from models import FULL, MATRICES, SHAPES, TORCH, Folders, Gradients, apart, copies, distance, equal, named, weights, with_matrices
from zoff import _api as api
from zoff._load import lib
from zoff.cohort import DTYPES

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


class Muon(Folders, unittest.TestCase):
    NUMBERS = (
        {"lr": 1e-2, "ns_method": "standard"},
        {"lr": 1e-2, "weight_decay": 0, "momentum": 0.9, "nesterov": False, "adjust_lr_fn": "match_rms_adamw", "adam_lr": 3e-3},
        {"lr": 1e-2, "ns_steps": 3, "adjust_lr_fn": "spectral_unclamped"},
    )

    @staticmethod
    def adamw(params, lr, weight_decay=0.1, adam_lr=None, **_):
        return torch.optim.AdamW(params, adam_lr or lr, (0.9, 0.95), 1e-10, weight_decay)

    @staticmethod
    def step(param, moment, shape, lr, weight_decay=0.1, momentum=0.95, nesterov=True, ns_steps=5, adjust_lr_fn=None, **_):
        """torch.optim.Muon without rounding, on all matrices of a parameter."""
        moment.lerp_(param.grad, 1 - momentum)
        x = (param.grad.lerp(moment, momentum) if nesterov else moment).reshape(-1, *shape)
        x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
        for _ in range(ns_steps):
            gram = x @ x.mT
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        rows, cols = shape
        scale = {None: max(1, rows / cols) ** 0.5, "match_rms_adamw": 0.2 * max(shape) ** 0.5, "spectral_unclamped": (rows / cols) ** 0.5}
        param.data.sub_(lr * weight_decay * param.data + lr * scale[adjust_lr_fn] * x.reshape(param.shape))

    def test_muon_is_that_of_torch_without_its_rounding(self):
        for numbers in self.NUMBERS:
            names = list(MATRICES)
            ours = with_matrices()
            params = [param for _, param in ours]
            first, exact, theirs = copies(params), copies(params, torch.float64), copies(params)
            moments, plain = [torch.zeros_like(param) for param in exact], [n for n, name in enumerate(names) if not MATRICES[name][1]]
            flat = [n for n, name in enumerate(names) if MATRICES[name][0] == MATRICES[name][1]]
            optimizers, gradients = [zoff.Muon(ours, **numbers), self.adamw([exact[n] for n in plain], **numbers)], Gradients()
            if hasattr(torch.optim, "Muon"):
                known = {key: value for key, value in numbers.items() if key not in ("ns_method", "adam_lr")}
                optimizers.append(torch.optim.Muon([theirs[n] for n in flat], **known))
            for _ in range(50):
                gradients.give(params, exact, theirs)
                for optimizer in optimizers:
                    optimizer.step()
                for n, name in enumerate(names):
                    if MATRICES[name][1]:
                        self.step(exact[n], moments[n], MATRICES[name][1], **numbers)
            for n, name in enumerate(names):
                away = apart([params[n]], [exact[n]]) / apart([first[n]], [exact[n]])
                with self.subTest(numbers=numbers, name=name):
                    self.assertLessEqual(away, 5e-5)
                    if n in flat and len(optimizers) == 3:
                        self.assertLessEqual(100 * away, apart([theirs[n]], [exact[n]]) / apart([first[n]], [exact[n]]))

    @staticmethod
    def over_memory(hyper, t, param, master, m, v, shape):
        """zoff_optimizer_step() on each matrix, or on all elements."""
        count = shape[0] * shape[1] if shape else param.numel()
        at = lambda tensor, first: tensor.data_ptr() + first * tensor.element_size()
        for first in range(0, param.numel(), count):
            tensor = api.zoff_optimizer_tensor(count=count, master=at(master, first), m=at(m, first), v=None if shape else at(v, first),
                                               grad=at(param.grad, first), grad_dtype=DTYPES[param.dtype], rows=shape[0] if shape else 0,
                                               cols=shape[1] if shape else 0)
            if param.dtype is not torch.float32:
                tensor.copy_out, tensor.copy_dtype = at(param, first), DTYPES[param.dtype]
            assert lib.zoff_optimizer_step(byref(hyper), t, 1.0, byref(tensor)) == 0, lib.zoff_last_error()

    def test_the_bits_are_those_of_the_step_over_memory(self):
        for where in ("dram", "nvme", "persist"):
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                with self.subTest(where=where, dtype=dtype):
                    ours = with_matrices(dtype)
                    config = self.config("nvme", persist=True) if where == "persist" else self.config(where)
                    optimizer, gradients = zoff.Muon(ours, lr=0.02, adam_lr=1e-3, config=config), Gradients()
                    optimizer.open()
                    theirs = copies([param for _, param in ours])
                    masters = [param.detach() if dtype is torch.float32 else param.detach().float() for param in theirs]
                    moments = [(torch.zeros(param.shape), torch.zeros(param.shape)) for param in theirs]
                    for t in range(1, 4):
                        gradients.give([param for _, param in ours], theirs)
                        optimizer.step()
                        for (_, shape), param, master, (m, v) in zip(MATRICES.values(), theirs, masters, moments):
                            self.over_memory(optimizer._hypers()[0], t, param, master, m, v, shape)
                    self.assertTrue(equal([param for _, param in ours], theirs))
                    for its, (_, shape), (m, v) in zip(optimizer.state_dict()["state"].values(), MATRICES.values(), moments):
                        self.assertEqual({"step", *(("momentum_buffer",) if shape else ("exp_avg", "exp_avg_sq")), *(() if dtype is torch.float32 else ("master",))},
                                         set(its))
                        self.assertTrue(torch.equal(its["momentum_buffer" if shape else "exp_avg"], m))
                    optimizer.close()


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.fc, self.out = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.proj(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.out(torch.nn.functional.gelu(self.fc(self.norm2(x))))


class Gpt(torch.nn.Module):
    def __init__(self, words=64, context=32, width=64):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(words, width), torch.nn.Embedding(context, width)
        self.h = torch.nn.Sequential(Block(width), Block(width))
        self.norm, self.lm_head = torch.nn.LayerNorm(width), torch.nn.Linear(width, words, bias=False)
        for param in self.parameters():
            if param.dim() == 2:
                torch.nn.init.normal_(param, std=0.02)

    def forward(self, text):
        logits = self.lm_head(self.norm(self.h(self.wte(text[:, :-1]) + self.wpe.weight)))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


class MuonTrains(Folders, unittest.TestCase):
    """A GPT is trained in fp32 with clipped gradients. Losses are computed in float64 from the weights of each step, because those in fp32
    hide differences below 1e-7. The rates are high, so that differences grow: with low ones they shrink, and after 100 steps only the
    roundings of the last steps are left."""

    STEPS, NUMBERS, CLIP = 100 if FULL else 10, {"lr": 0.05, "adam_lr": 5e-3, "weight_decay": 0.01}, 0.5

    def setUp(self):
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)

    @staticmethod
    def model(seed=None):
        """With a seed, each weight is changed by a relative 1e-7."""
        torch.manual_seed(5)
        model = Gpt()
        if seed is not None:
            chance = torch.Generator().manual_seed(seed)
            for param in model.parameters():
                param.data.copy_(param.double() * (1 + 1e-7 * torch.randn(param.shape, generator=chance, dtype=torch.float64)))
        return model

    def losses(self, model, step):
        chance, found = torch.Generator().manual_seed(6), []
        for _ in range(self.STEPS):
            text = [torch.randint(64, (8,), generator=chance)]
            for _ in range(32):
                text.append((5 * text[-1] + torch.randint(4, (8,), generator=chance)) % 64)
            text = torch.stack(text, 1)
            with torch.no_grad():
                found.append(float(torch.func.functional_call(model, {name: param.double() for name, param in model.named_parameters()}, text)))
            model.zero_grad()
            model(text).backward()
            step()
        return found

    def by_zoff(self, config):
        model = self.model()
        optimizer = zoff.Muon(model.named_parameters(), config=config, clip_norm=self.CLIP, **self.NUMBERS)
        self.addCleanup(optimizer.close)
        return self.losses(model, optimizer.step)

    def with_the_least_memory(self, bytes_=1):
        """`bytes_`: DRAM for states, or more where zoff asks for it."""
        try:
            return self.by_zoff(zoff.Config(nvme=self.folder(), host_memory=bytes_))
        except zoff.Error as error:
            more = re.search(r"raise it to (\d+) bytes", str(error))
            self.assertTrue(more and int(more[1]) > bytes_, error)
            return self.with_the_least_memory(int(more[1]))

    def by_torch(self, seed=None):
        """The recursion of zoff/optimizer.h with products of torch in fp32."""
        model, rate = self.model(seed), self.NUMBERS
        names = dict(model.named_parameters())
        matrices = {name: param for name, param in names.items() if param.dim() == 2 and name.startswith("h.")}
        moments = {name: torch.zeros_like(param) for name, param in matrices.items()}
        others = [param for name, param in names.items() if name not in matrices]
        adamw = Muon.adamw(others, **{**rate, "weight_decay": 0})  # which rounds 1 - lr * weight_decay in each step

        def step():
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.CLIP)
            for param in others:
                param.data.sub_(rate["adam_lr"] * rate["weight_decay"] * param.data)
            adamw.step()
            for name, param in matrices.items():
                Muon.step(param, moments[name], param.shape, **rate)

        return self.losses(model, step)

    def test_losses_are_the_same_on_each_tier_and_those_of_torch(self):
        ours, theirs = self.by_zoff(self.config("dram")), self.by_torch()
        self.assertEqual(ours, self.by_zoff(self.config("nvme")))
        self.assertEqual(ours, self.with_the_least_memory())
        away = [abs(one - other) for one, other in zip(ours, theirs)]
        print(f"Muon from torch: {max(away[:10]):.1e} in 10 steps, {away[-1]:.1e} in step {self.STEPS}, loss {ours[0]:.4f} to {ours[-1]:.4f}")
        self.assertLessEqual(max(away[:10]), 1e-5)
        if FULL:
            changed = [abs(self.by_torch(seed)[-1] - theirs[-1]) for seed in range(8)]
            print("first weights changed by 1e-7:", *(f"{one:.1e}" for one in changed))
            self.assertLessEqual(away[-1], 2 * max(changed))
