#!/usr/bin/env python3
"""torch_adamw.py: 100 steps of PyTorch's own AdamW and Adam in fp32 judge zoff_adam_step(), element by element.

torch_adamw.py TORCH_SIDE VENV_DIR

PyTorch is taken from the Python that runs this, else from VENV_DIR, else installed there from PyPI, once. Exit code 77, with
the reason, where none of that is possible.

The tolerance. Both sides round each operation to fp32, with u = 2^-24 of relative error, but group them differently. In one
step PyTorch computes p * (1 - lr * weight_decay) + (-step * m) / (sqrt(v) / c + eps): it rounds the factor, the product and the
sum, we round the decay constant, the product-sum and the sum: at most 3 roundings of size u * |p| on each side. The update itself
carries the errors of m (each step adds three roundings, and the older ones fade by beta1), of v (they add up to at most 3 u a
step, halved by the root) and five more operations: after `steps` steps it is off by at most (1.5 * steps + 3 / (1 - beta1) + 5) u
of the size of the terms that m is summed from, which is at most lr * K, where K is the largest mean of |g| over root mean
square of g that the betas allow, (1 - beta1) / sqrt((1 - beta2) * (1 - beta1^2 / beta2)) by Cauchy and Schwarz. Doubled for the
two sides, summed over the steps. In L2 mode the gradient has two more roundings, in m alike. All of this is a few thousandths of one
lr; a term left out, an eps in another place or a bias correction one step off moves an element by many.
"""
import array
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time

SKIP = 77
INSTALL_SECONDS = 900
DISK_BYTES = 12 << 30  # PyPI's wheel for x86-64 brings its GPU libraries with it
STEPS = 100
COUNT = 1537
U = 2.0**-24


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(SKIP)


def can_import(python):
    return subprocess.run([python, "-c", "import torch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def install(venv):
    """The Python of VENV_DIR, with PyTorch in it."""
    python = os.path.join(venv, "bin", "python")
    if os.path.exists(python) and can_import(python):
        return python
    os.makedirs(venv, exist_ok=True)
    free = shutil.disk_usage(venv).free
    if free < DISK_BYTES:
        skip(f"PyTorch is not installed, and {venv} has {free >> 30} GiB of {DISK_BYTES >> 30} GiB free that an installation needs")
    started = time.monotonic()
    for command in ([sys.executable, "-m", "venv", "--clear", venv],
                    [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "torch", "numpy"]):
        left = INSTALL_SECONDS - (time.monotonic() - started)
        try:
            done = subprocess.run(command, timeout=left, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except subprocess.TimeoutExpired:
            skip(f"PyTorch is not installed, and installing it took more than {INSTALL_SECONDS} s")
        if done.returncode:
            lines = [line for line in done.stdout.strip().splitlines() if line.strip()] or ["no output"]
            skip(f"PyTorch is not installed, and '{' '.join(command)}' failed: {lines[-1]}")
    print(f"installed PyTorch from PyPI into {venv} in {time.monotonic() - started:.0f} s")
    if not can_import(python):
        skip("PyTorch from PyPI was installed but does not import")
    return python


def write_input(path, case, p, grads):
    decay = 1 if case["l2"] else 0
    head = array.array("d", [COUNT, STEPS, case["lr"], *case["betas"], case["eps"], case["weight_decay"], decay])
    with open(path, "wb") as file:
        head.tofile(file)
        for tensor in (p, grads):
            array.array("f", tensor.flatten().tolist()).tofile(file)


def read_output(torch, path):
    with open(path, "rb") as file:
        values = array.array("f")
        values.fromfile(file, 3 * COUNT)
    return torch.tensor(values, dtype=torch.float64).reshape(3, COUNT)


def reference(torch, case, p, grads, dtype):
    """PyTorch's weights and moments after all steps, and the sum over the steps of the largest |p| of each element so far."""
    weight = torch.nn.Parameter(p.to(dtype).clone())
    kind = torch.optim.Adam if case["l2"] else torch.optim.AdamW
    optimizer = kind([weight], lr=case["lr"], betas=case["betas"], eps=case["eps"], weight_decay=case["weight_decay"])
    largest = torch.zeros(COUNT, dtype=torch.float64)
    total = torch.zeros(COUNT, dtype=torch.float64)
    for t in range(STEPS):
        weight.grad = grads[t].to(dtype).clone()
        largest = torch.maximum(largest, weight.detach().double().abs())
        optimizer.step()
        largest = torch.maximum(largest, weight.detach().double().abs())
        total += largest
    state = optimizer.state[weight]
    return torch.stack([weight.detach().double(), state["exp_avg"].double(), state["exp_avg_sq"].double()]), total


def tolerance(case, total):
    beta1, beta2 = case["betas"]
    largest_update = (1 - beta1) / math.sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2))
    roundings = sum(1.5 * t + (5 if case["l2"] else 3) / (1 - beta1) + 5 for t in range(1, STEPS + 1))
    return 2 * U * (3 * total + case["lr"] * largest_update * roundings)


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
    theirs, total = reference(torch, case, p, grads, torch.float32)
    exact, _ = reference(torch, case, p, grads, torch.float64)
    allowed = tolerance(case, total)
    difference = (ours[0] - theirs[0]).abs()
    worst = int((difference / allowed).argmax())
    moved = (exact[0] - p.double()).abs().clamp_min(1e-30)
    print(f"{name}: largest difference to fp32 PyTorch {difference.max():.3g}, of lr {difference.max() / case['lr']:.3g}, "
          f"of the tolerance {difference[worst] / allowed[worst]:.3f}; median relative error of the update against fp64 PyTorch: "
          f"zoff {((ours[0] - exact[0]).abs() / moved).median():.2e}, PyTorch fp32 {((theirs[0] - exact[0]).abs() / moved).median():.2e}")
    good = True
    if not bool((difference <= allowed).all()):
        print(f"FAILED: {name}: p[{worst}] is {ours[0][worst]:.9g}, PyTorch has {theirs[0][worst]:.9g}, allowed {allowed[worst]:.3g}")
        good = False
    if not bool((allowed < 0.05 * case["lr"] + 1e-4 * total / STEPS).all()):
        print(f"FAILED: {name}: the tolerance is so wide that it proves nothing")
        good = False
    # Moments, relative to the largest term in their sums: m may cancel, its terms do not.
    largest_grad = grads.abs().max(dim=0).values.double() + case["weight_decay"] * case["l2"] * total / STEPS
    for index, moment, size in ((1, "m", largest_grad), (2, "v", largest_grad**2)):
        error = (ours[index] - theirs[index]).abs() / size
        if not bool((error <= 2 * STEPS * 4 * U).all()):
            print(f"FAILED: {name}: {moment} differs by {error.max():.3g} of its terms")
            good = False
    return good


def main():
    side, venv = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    try:
        import torch
    except ImportError:
        if os.environ.get("ZOFF_TEST_TORCH_VENV") == venv:
            skip("PyTorch does not import from its own virtual environment")
        python = install(venv)
        os.environ["ZOFF_TEST_TORCH_VENV"] = venv
        os.execv(python, [python, os.path.abspath(__file__), side, venv])
    torch.set_num_threads(1)
    print("PyTorch", torch.__version__)
    usual = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "l2": False}
    cases = {
        "AdamW": usual,
        "AdamW, large eps and decay": {**usual, "lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1},
        "Adam": {**usual, "weight_decay": 0},
        "Adam with L2": {**usual, "eps": 1e-3, "weight_decay": 0.1, "l2": True},
    }
    results = [judge(torch, side, name, case) for name, case in cases.items()]
    sys.exit(0 if all(results) else 1)


main()
