# SPDX-License-Identifier: Apache-2.0
"""programs.py: random programs for zoff in fp32, PyTorch in fp32 and PyTorch in float64, which takes the same steps.

After each operation zoff must be at most as far from PyTorch as 1.25 times PyTorch is from float64, or not farther from float64 than
PyTorch. The first operation that breaks this is named with its parameter. Losses are linear, so gradients are given, and no difference comes back through them.

One difference to PyTorch is documented, and no program has it: a step counts for all parameters of an engine of which one has a
gradient. So parameters whose first gradient came in the same step, or that had the same count when they were loaded, have gradients
in the same steps.

ZOFF_TEST_PROGRAMS="FIRST COUNT" runs other programs."""
import copy
import gc
import os
import random
import unittest
import warnings

import torch

import zoff
from models import FULL, TORCH, Folders, apart

SHAPES = ((40, 25), (600,), (3, 7, 5, 5), (1,), ())
ROUNDING = 2**-24


class Side:
    """A model and its optimizer."""

    def __init__(self, dtype, params, kind, numbers, scale):
        self.dtype, self.kind, self.numbers = dtype, kind, numbers
        self.params = {name: torch.nn.Parameter(value.to(dtype, copy=True)) for name, value in params.items()}
        self.optimizer = self.make([{"params": list(self.params.items())}])
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3) if scale else None
        self.scheduler, self.clip = None, None

    def listed(self, params):
        """Pairs of name and parameter, of which torch before 2.6 takes only the second."""
        return list(params) if self.kind.__module__.startswith("zoff") else [param for _, param in params]

    def make(self, groups):
        return self.kind([{**group, "params": self.listed(group["params"])} for group in groups], **self.numbers)

    def groups(self):
        names = {param: name for name, param in self.params.items()}
        return [{"params": [(names[param], param) for param in group["params"]], "lr": group["lr"]} for group in self.optimizer.param_groups]

    def backward(self, factors, inf):
        loss = sum((self.params[name] * factor.to(self.dtype)).sum() for name, factor in factors.items())
        loss = loss * float("inf") if inf else loss
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        return loss

    def step(self, factors, way, clip):
        """`way`: how the gradients come to the optimizer."""
        self.optimizer.zero_grad(set_to_none=way != "zeros")
        if way == "closure" and not self.scaler:
            self.optimizer.step(lambda: self.backward(factors, False))
        else:
            parts = 3 if way == "accumulate" else 1
            for part in range(parts):
                self.backward({name: factor / parts for name, factor in factors.items()}, way == "inf" and part == 0)
            if self.scaler:
                self.scaler.unscale_(self.optimizer)
            if clip:
                torch.nn.utils.clip_grad_norm_([param for param in self.params.values() if param.grad is not None], clip)
            if self.scaler:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()
        if "overlap" in self.numbers:
            self.optimizer.wait()
        if self.scheduler:
            self.scheduler.step()


class Program:
    """A program, drawn while it runs."""

    def __init__(self, seed, folder):
        self.draw, self.chance, self.seed = random.Random(seed), torch.Generator().manual_seed(seed), seed
        draw = self.draw
        kind = draw.choice((zoff.AdamW, zoff.AdamW, zoff.Adam, zoff.SGD, zoff.Adagrad))
        numbers = {"lr": draw.choice((1e-3, 1e-2)), "weight_decay": draw.choice((0, 0.01, 0.1))}
        if kind is zoff.SGD:
            numbers.update(momentum=draw.choice((0, 0.9)))
            numbers.update(nesterov=bool(numbers["momentum"]) and draw.random() < 0.5)
        if kind in (zoff.AdamW, zoff.Adam) and draw.random() < 0.5:
            numbers.update(betas=(0.8, 0.95), eps=1e-6)
        self.clip = draw.choice((None, None, 0.5, 50.0))  # by zoff itself on its side
        self.clips_here = self.clip and draw.random() < 0.5
        scale = draw.choice((None, None, None, 2.0**8))
        config = zoff.Config(nvme=folder, host_memory="256KiB") if draw.random() < 0.3 else zoff.Config()
        ahead = random.Random(~seed).random() < 0.4  # gradients are handed over in the backward pass
        if ahead:
            config.set("zoff.background_threads", 1).set("zoff.speculation_memory", "1MiB")
        first = {f"p{number}": self.tensor(SHAPES[number]) for number in range(draw.randint(1, len(SHAPES)))}
        self.cohort, self.counts = {}, {}  # a name of the engine, and the number of steps, by parameter
        self.frozen = set()
        self.steps = 0
        its = {**numbers, **({"overlap": torch.nn.Identity()} if ahead else {}), "config": config, "clip_norm": self.clip if self.clips_here and not scale else None}
        self.ours = Side(torch.float32, first, kind, its, scale)
        self.clips_here = its["clip_norm"]
        self.theirs = Side(torch.float32, first, TORCH[kind], numbers, scale)
        self.exact = Side(torch.float64, first, TORCH[kind], numbers, scale)
        self.sides = (self.ours, self.theirs, self.exact)
        self.poison = []

    def tensor(self, shape):
        return 0.05 * torch.randn(shape, generator=self.chance)

    # ---- operations ----

    def step(self, way="plain"):
        free = [name for name in self.ours.params if name not in self.frozen]
        begun = sorted({self.cohort[name] for name in free if name in self.cohort})
        held = {name for name, param in self.ours.params.items() if param.grad is not None} if way == "zeros" else set()
        chosen = {self.cohort[name] for name in held if name in self.cohort} | {cohort for cohort in begun if self.draw.random() < 0.8}
        names = {name for name in free if self.cohort.get(name) in chosen or (name not in self.cohort and self.draw.random() < 0.6)} | held
        names -= {name for name in names if name in self.cohort and self.cohort[name] in {self.cohort.get(other) for other in self.frozen}}
        if way == "zeros" and not names >= held:
            way = "plain"
        if not names:
            return
        factors = {name: torch.randn(self.ours.params[name].shape, generator=self.chance) for name in sorted(names)}
        for side in self.sides:
            side.step(factors, way, self.clip if side is not self.ours or not self.clips_here else None)
        if way != "inf" or not self.ours.scaler:
            self.steps += 1
            for name in names:
                self.cohort.setdefault(name, f"from {self.steps}")
                self.counts[name] = self.counts.get(name, 0) + 1

    def zeros(self):
        self.step("zeros")

    def accumulate(self):
        self.step("accumulate")

    def closure(self):
        if not self.clip or self.clips_here is None and self.clip is None:
            self.step("closure")

    def overflow(self):
        if self.ours.scaler:
            self.step("inf")

    def add_group(self):
        name, lr = f"p{len(self.ours.params)}", self.draw.choice((1e-3, 3e-3))
        if len(self.ours.params) < 9 and not self.ours.scheduler:
            value = self.tensor(self.draw.choice(SHAPES))
            for side in self.sides:
                side.params[name] = torch.nn.Parameter(value.to(side.dtype, copy=True))
                side.optimizer.add_param_group({"params": side.listed([(name, side.params[name])]), "lr": lr})
                if side.kind is torch.optim.Adagrad:  # older versions of torch give states to the first parameters only
                    side.optimizer.state[side.params[name]] = {"step": torch.tensor(0.0), "sum": torch.zeros_like(side.params[name])}

    def freeze(self):
        name = self.draw.choice(sorted(self.ours.params))
        same = {other for other in self.ours.params if self.cohort.get(other, other) == self.cohort.get(name, name)}
        if len(same) < len(self.ours.params) - len(self.frozen):
            self.frozen |= same
            for side in self.sides:
                for other in same:
                    side.params[other].requires_grad_(False)
                    side.params[other].grad = None

    def unfreeze(self):
        for side in self.sides:
            for name in self.frozen:
                side.params[name].requires_grad_(True)
        self.frozen = set()

    def load(self):
        """A new optimizer with the states of the old one."""
        self.cohort = {name: f"at {self.counts[name]}" for name in self.cohort}
        for side in self.sides:
            state_dict, scheduler = side.optimizer.state_dict(), side.scheduler
            if side is self.ours and self.draw.random() < 0.5:
                side.optimizer.close()
            side.optimizer = side.make(side.groups())
            side.optimizer.load_state_dict(copy.deepcopy(state_dict))
            side.scheduler = self.schedule_of(side.optimizer, scheduler.last_epoch) if scheduler else None

    @staticmethod
    def schedule_of(optimizer, epoch=-1):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.5 + 0.5 / (1 + t), epoch)

    def schedule(self):
        for side in self.sides:
            if not side.scheduler:
                side.scheduler = self.schedule_of(side.optimizer)

    def data(self):
        """Weights that are assigned, changed by .data, or in place."""
        how, name = self.draw.choice(("assign", "fill", "scale")), self.draw.choice(sorted(self.ours.params))
        for side in self.sides:
            param = side.params[name]
            if how == "assign":
                param.data = param.data.clone()
            elif how == "fill":
                param.data.mul_(0.5)
            else:
                with torch.no_grad():
                    param.mul_(0.75)

    def deepcopy(self):
        """Before the first step: the model and its optimizer."""
        if not self.cohort and not self.ours.scheduler:
            for side in self.sides:
                side.params, side.optimizer = copy.deepcopy((side.params, side.optimizer))

    def collect(self):
        """Free gradients, and fill memory as theirs with NaN, which a step would show if it read one that is gone."""
        for side in self.sides:
            side.optimizer.zero_grad()
        gc.collect()
        self.poison = [torch.full_like(param, float("nan")) for param in self.ours.params.values() for _ in range(2)]

    OPERATIONS = ((step, 10), (zeros, 2), (accumulate, 2), (closure, 2), (overflow, 2), (add_group, 2), (freeze, 1), (unfreeze, 2), (load, 2),
                  (schedule, 1), (data, 2), (deepcopy, 2), (collect, 2))

    def judge(self):
        """(parameter, distance, allowed) of the first parameter that is too far, or None."""
        names = self.ours.params
        ours, theirs, exact = ([side.params[name] for name in names] for side in self.sides)
        # Each element may also be off by one rounding, as in programs in which PyTorch has made no error yet.
        rounding = ROUNDING * sum(float(param.detach().square().sum()) for param in exact) ** 0.5
        allowed = 1.25 * apart(theirs, exact) + rounding
        if not (apart(ours, theirs) <= allowed or apart(ours, exact) <= apart(theirs, exact)):
            worst = max(names, key=lambda name: apart([self.ours.params[name]], [self.theirs.params[name]]))
            return worst, apart(ours, theirs), allowed
        return None

    def run(self):
        done = []
        for _ in range(self.draw.randint(5, 30)):
            operation = self.draw.choices([operation for operation, _ in self.OPERATIONS], [weight for _, weight in self.OPERATIONS])[0]
            done.append(operation.__name__)
            operation(self)
            if found := self.judge():
                return f"program {self.seed}, {type(self.ours.optimizer).__name__} {self.theirs.numbers}: operation {len(done)} of {done}: {found[0]} " \
                       f"is among what differs: {found[1]:.3g} apart, allowed {found[2]:.3g}"
        return None


class Programs(Folders, unittest.TestCase):
    def test_random_programs_stay_as_near_as_torch_is_to_float64(self):
        first, count = map(int, os.environ.get("ZOFF_TEST_PROGRAMS", "0 2000" if FULL else "0 60").split())
        folder, wrong = self.folder(), []
        warnings.simplefilter("ignore")  # of parameters without states, and of steps that the scaler skips
        gc.freeze()  # torch has a million objects, which each collection would visit
        self.addCleanup(gc.unfreeze)
        for seed in range(first, first + count):
            program = Program(seed, folder)
            if said := program.run():
                wrong.append(said)
            program.ours.optimizer.close()
        self.assertEqual([], wrong[:16], f"{len(wrong)} of {count} programs")
