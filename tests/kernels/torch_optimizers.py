#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch_optimizers.py: compares zoff_optimizer_step() with 100 steps of PyTorch's own optimizers in fp32, element by element. Tests
Adam, AdamW, Adagrad and SGD. PyTorch has no Lion, so this file contains one written with tensors of PyTorch. TORCH_SIDE also takes
the steps with masters in two halves, and fails where these have other bits.

torch_optimizers.py TORCH_SIDE VENV_DIR

PyTorch is taken from the Python that runs this script, otherwise from VENV_DIR. If neither has it, it is installed once from PyPI
into VENV_DIR. Exits with 77 and a reason if all of that fails.

The tolerances. Both sides round each operation to fp32, with a relative error of u = 2^-24, but group the operations
differently. The tolerance of an element is the sum over the steps of the largest error of one side, doubled for the two sides. The
same steps in fp64 give the sizes of the terms.

- The weight itself. PyTorch rounds the decay factor, the product and the sum. zoff rounds the decay constant, the fused
  product and sum, and the sum. The error is at most 3 u |p| a step.
- Adam. The update inherits the errors of m and v, and adds five more operations. For m each step adds three roundings, and older
  ones decay by beta1. For v they add up to at most 3 u a step, halved by the root. After t steps the update is off by at most
  (1.5 t + 3 / (1 - beta1) + 5) u, relative to the size of the terms that m sums up. The size is at most lr * K. K is the largest
  ratio of the mean of |g| to the root mean square of g that the betas allow. By Cauchy and Schwarz it is
  (1 - beta1) / sqrt((1 - beta2) * (1 - beta1^2 / beta2)). In L2 mode the gradient has two more roundings, in m as well.
- Adagrad. Let G be |grad| + weight_decay |p|, and let r be sqrt(v) + eps. The state v is a sum of positive terms. Its own
  roundings make it off by (t + 3) u relative to itself, halved by the root. The roundings of the gradients add 2 u G each; by
  Cauchy and Schwarz that is 2 sqrt(t) u G / r in the update. The gradient and the operations of the update itself add 8 u G / r.
  All of this is multiplied by lr.
- SGD. The terms of m add up to at most M = max G / (1 - momentum). Three roundings a step decay by the momentum, and the update
  adds five: u M (3 / (1 - momentum) + 5), twice for Nesterov's form, all times lr. The weight decay feeds an error of p back
  into the gradient: lr * weight_decay / (1 - momentum) of it a step.
- Lion. A sign has no error if it can be decided. The sum c whose sign is taken has an error of
  u max|g| (3 / (1 - beta2) + 5). If |c| is not above that, the two sides may differ by 2 lr. Such steps are counted, must be
  rare, and widen the tolerance of their element only.

An element moves by far more if a term is left out or eps is in another place. The same holds for dampening in step 1, or a bias
correction that is one step off. So each tolerance is also compared with the distance that the element has moved.
"""
import array
import math
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from torch_venv import need_torch  # noqa: E402

STEPS = 100
COUNT = 1537
U = 2.0**-24
ADAM, ADAGRAD, LION, SGD = range(4)  # the values of zoff_optimizer
DEFAULTS = {"optimizer": ADAM, "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "l2": False,
            "momentum": 0, "dampening": 0, "lr_decay": 0, "nesterov": False, "bias_correction": True}


def write_input(path, case, p, grads):
    head = array.array("d", [COUNT, STEPS, case["optimizer"], case["lr"], *case["betas"], case["eps"], case["weight_decay"],
                             case["l2"], case["momentum"], case["dampening"], case["lr_decay"], case["nesterov"],
                             0 if case["bias_correction"] else 1])
    with open(path, "wb") as file:
        head.tofile(file)
        for tensor in (p, grads):
            array.array("f", tensor.flatten().tolist()).tofile(file)


def read_output(torch, path):
    """Return the weights, m and v."""
    with open(path, "rb") as file:
        values = array.array("f")
        values.fromfile(file, 3 * COUNT)
    return torch.tensor(values, dtype=torch.float64).reshape(3, COUNT)


class Lion:
    """Algorithm 2 of Chen et al. 2023, line by line."""

    def __init__(self, weights, lr, betas, weight_decay):
        self.weight, self.lr, self.betas, self.weight_decay = weights[0], lr, betas, weight_decay
        self.state = {self.weight: {"exp_avg": self.weight.detach() * 0}}

    def step(self):
        p, g, m = self.weight.data, self.weight.grad, self.state[self.weight]["exp_avg"]
        beta1, beta2 = self.betas
        sign = (beta1 * m + (1 - beta1) * g).sign()
        p -= self.lr * (sign + self.weight_decay * p)
        m.mul_(beta2).add_(g, alpha=1 - beta2)


def make_optimizer(torch, case, weight):
    shared = {"lr": case["lr"], "weight_decay": case["weight_decay"]}
    if case["optimizer"] == ADAGRAD:
        return torch.optim.Adagrad([weight], eps=case["eps"], lr_decay=case["lr_decay"], **shared)
    if case["optimizer"] == LION:
        return Lion([weight], betas=case["betas"], **shared)
    if case["optimizer"] == SGD:
        return torch.optim.SGD([weight], momentum=case["momentum"], dampening=case["dampening"], nesterov=case["nesterov"], **shared)
    kind = torch.optim.Adam if case["l2"] else torch.optim.AdamW
    return kind([weight], betas=case["betas"], eps=case["eps"], **shared)


class Terms:
    """The sizes of the terms of a tolerance, and the distance each element moves, from the steps in fp64."""

    def __init__(self, torch, case):
        self.torch, self.case = torch, case
        self.largest_p, self.total_p, self.way, self.largest_g, self.allowed = (
            torch.zeros(COUNT, dtype=torch.float64) for _ in range(5))
        self.untold = torch.zeros(COUNT, dtype=torch.int64)

    def add(self, t, before, after, grad, state):
        """Record that step `t` changed a weight from `before` to `after`."""
        case, torch = self.case, self.torch
        self.largest_p = torch.maximum(self.largest_p, torch.maximum(before.abs(), after.abs()))
        self.total_p += self.largest_p
        self.way += (after - before).abs()
        size = grad.abs() + case["weight_decay"] * before.abs()
        self.largest_g = torch.maximum(self.largest_g, size)
        beta1, beta2 = case["betas"]
        update = torch.zeros(COUNT, dtype=torch.float64)
        if case["optimizer"] == ADAM:
            most = (1 - beta1) / math.sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2))
            update += most * (1.5 * t + (5 if case["l2"] else 3) / (1 - beta1) + 5)
        elif case["optimizer"] == ADAGRAD:
            root = state["sum"].sqrt() + case["eps"]
            g = grad + case["weight_decay"] * before
            update = (t + 3) / 2 * g.abs() / root + (8 + 2 * math.sqrt(t)) * size / root
        elif case["optimizer"] == SGD:
            fade = 1 - case["momentum"]
            update = (1 + case["nesterov"]) * (self.largest_g / fade) * (3 / fade + 5)
        else:
            old = (state["exp_avg"] - (1 - beta2) * grad) / beta2
            c = beta1 * old + (1 - beta1) * grad
            untold = c.abs() <= U * self.largest_g * (3 / (1 - beta2) + 5)
            self.untold += untold
            update = 3 + untold * 1.0 / U  # 2 lr in all when the two sides are added
        self.allowed += 2 * U * (3 * self.largest_p + case["lr"] * update)
        if case["optimizer"] == SGD:
            self.allowed *= 1 + case["lr"] * case["weight_decay"] / (1 - case["momentum"])


def far_on(torch, optimizer, weight):
    """PyTorch's Adam cannot switch off bias correction. In its billionth step 1 - beta^t is exactly 1."""
    optimizer.state[weight].update(step=torch.tensor(1e9, dtype=torch.float64), exp_avg=torch.zeros_like(weight),
                                   exp_avg_sq=torch.zeros_like(weight))


def reference(torch, case, p, grads, dtype, terms=None):
    """Return the weights after all steps, and the states by their names."""
    weight = torch.nn.Parameter(p.to(dtype).clone())
    optimizer = make_optimizer(torch, case, weight)
    for t in range(STEPS):
        weight.grad = grads[t].to(dtype).clone()
        if t == 0 and not case["bias_correction"]:
            far_on(torch, optimizer, weight)
        before = weight.detach().clone()
        optimizer.step()
        if terms:
            terms.add(t + 1, before, weight.detach().clone(), weight.grad, optimizer.state[weight])
    return weight.detach().double(), optimizer.state[weight]


def judge_states(case, ours, state, terms):
    """Return a message for each state that is off, relative to the largest terms of its sum: m may cancel, its terms do not."""
    names = {ADAM: ("exp_avg", "exp_avg_sq"), ADAGRAD: (None, "sum"), LION: ("exp_avg", None), SGD: ("momentum_buffer", None)}
    size = terms.largest_g / (1 - case["momentum"])
    wrong = []
    for index, (name, largest) in enumerate(zip(names[case["optimizer"]], (size, size**2 * (STEPS if case["optimizer"] == ADAGRAD else 1)))):
        if name is None or state.get(name) is None:
            if bool((ours[1 + index] != 0).any()):
                wrong.append(f"{'mv'[index]} was written, but the rule does not have it")
            continue
        error = (ours[1 + index] - state[name].double()).abs() / largest
        if not bool((error <= 2 * STEPS * 4 * U).all()):
            wrong.append(f"{name} differs by {error.max():.3g} of its terms")
    return wrong


def judge(torch, side, name, case):
    generator = torch.Generator().manual_seed(2026)
    p = 0.05 * torch.randn(COUNT, generator=generator)
    scale = 10.0 ** (torch.arange(COUNT) % 5 - 3)  # gradients of 1e-3 to 10
    grads = torch.randn(STEPS, COUNT, generator=generator) * scale
    with tempfile.TemporaryDirectory(dir=".") as folder:
        source, result = os.path.join(folder, "in"), os.path.join(folder, "out")
        write_input(source, case, p, grads)
        subprocess.run([side, source, result], check=True)
        ours = read_output(torch, result)
    terms = Terms(torch, case)
    theirs, state = reference(torch, case, p, grads, torch.float32)
    exact, _ = reference(torch, case, p, grads, torch.float64, terms)
    allowed = terms.allowed
    difference = (ours[0] - theirs).abs()
    worst = int((difference / allowed).argmax())
    moved = (exact - p.double()).abs().clamp_min(1e-30)
    print(f"{name}: largest difference to fp32 PyTorch {difference.max():.3g}, relative to the distance moved "
          f"{(difference / terms.way).max():.3g}, relative to the tolerance {difference[worst] / allowed[worst]:.3f}; median relative error of "
          f"the update against fp64: zoff {((ours[0] - exact).abs() / moved).median():.2e}, "
          f"PyTorch fp32 {((theirs - exact).abs() / moved).median():.2e}")
    wrong = judge_states(case, ours, state, terms)
    if not bool((difference <= allowed).all()):
        wrong.append(f"p[{worst}] is {ours[0][worst]:.9g}, PyTorch has {theirs[worst]:.9g}, allowed {allowed[worst]:.3g}")
    told = terms.untold == 0
    if not bool((allowed <= 0.01 * terms.way + 2 * U * 3 * terms.total_p)[told].all()):
        wrong.append("the tolerance is so wide that it proves nothing")
    if int(terms.untold.sum()) > COUNT * STEPS // 1000:
        wrong.append(f"{int(terms.untold.sum())} of {COUNT * STEPS} signs cannot be decided")
    for words in wrong:
        print(f"FAILED: {name}: {words}")
    return not wrong


def cases():
    adagrad = {**DEFAULTS, "optimizer": ADAGRAD, "lr": 1e-2, "eps": 1e-10}
    lion = {**DEFAULTS, "optimizer": LION, "lr": 1e-4, "betas": (0.9, 0.99)}
    sgd = {**DEFAULTS, "optimizer": SGD, "lr": 0.01}
    return {
        "AdamW": {**DEFAULTS, "weight_decay": 0.01},
        "AdamW, large eps and decay": {**DEFAULTS, "lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1},
        "Adam": DEFAULTS,
        "Adam with L2": {**DEFAULTS, "eps": 1e-3, "weight_decay": 0.1, "l2": True},
        "Adam without bias correction": {**DEFAULTS, "bias_correction": False},
        "AdamW without bias correction": {**DEFAULTS, "lr": 1e-2, "weight_decay": 0.1, "eps": 1e-6, "bias_correction": False},
        "Adagrad": adagrad,
        "Adagrad with L2, lr_decay and a large eps": {**adagrad, "weight_decay": 0.1, "lr_decay": 0.02, "eps": 1e-3},
        "Lion": lion,
        "Lion with decay": {**lion, "lr": 1e-3, "betas": (0.95, 0.98), "weight_decay": 0.5},
        "SGD": sgd,
        "SGD with L2": {**sgd, "weight_decay": 0.1},
        "SGD with momentum": {**sgd, "momentum": 0.9},
        "SGD with momentum, dampening and L2": {**sgd, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.1},
        "SGD with a dampening below 0": {**sgd, "momentum": 0.5, "dampening": -0.5},
        "SGD by Nesterov": {**sgd, "momentum": 0.9, "nesterov": True},
        "SGD by Nesterov with L2": {**sgd, "momentum": 0.7, "nesterov": True, "weight_decay": 0.1},
    }


def main():
    side, venv = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    torch = need_torch(venv)
    torch.set_num_threads(1)
    print("PyTorch", torch.__version__)
    results = [judge(torch, side, name, case) for name, case in cases().items()]
    sys.exit(0 if all(results) else 1)


main()
