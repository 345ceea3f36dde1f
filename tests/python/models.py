# SPDX-License-Identifier: Apache-2.0
"""models.py: small models with given gradients."""
import os
import tempfile

import torch

import zoff

FULL = os.environ.get("ZOFF_TEST_FULL", "0") != "0"
SHAPES = ((33, 17), (1537,), (5, 3, 3, 3), ())
MATRICES = {"fc.weight": ((33, 17), (33, 17)), "wide.weight": ((12, 80), (12, 80)), "experts": ((3, 10, 6), (10, 6)), "conv.weight": ((5, 3, 3, 3), (5, 27)),
            "embed.weight": ((9, 7), None), "bias": ((1537,), None), "scale": ((), None)}  # shapes, and those of their matrices for Muon
TORCH = {zoff.AdamW: torch.optim.AdamW, zoff.Adam: torch.optim.Adam, zoff.Adagrad: torch.optim.Adagrad, zoff.SGD: torch.optim.SGD}


def weights(dtype=torch.float32, shapes=SHAPES, seed=0):
    chance = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter((0.05 * torch.randn(shape, generator=chance)).to(dtype)) for shape in shapes]


def with_matrices(dtype=torch.float32):
    """[(name, parameter)] of MATRICES."""
    return list(zip(MATRICES, weights(dtype, [shape for shape, _ in MATRICES.values()])))


def named(params):
    return [(f"p{number}", param) for number, param in enumerate(params)]


def copies(params, dtype=None):
    return [torch.nn.Parameter(param.detach().clone().to(dtype or param.dtype), param.requires_grad) for param in params]


class Gradients:
    """The same gradients for several models."""

    def __init__(self, seed=1):
        self.chance = torch.Generator().manual_seed(seed)

    def give(self, *models, without=()):
        for number, same in enumerate(zip(*models)):
            grad = torch.randn(same[0].shape, generator=self.chance)
            grad = grad.to(next((p.dtype for p in same if p.dtype.itemsize == 2), torch.float32))
            for param in same:
                param.grad = None if number in without else grad.to(param.dtype, copy=True)


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other))


def distance(one, other):
    """The largest difference of an element."""
    return max((float((a.detach().double() - b.detach().double()).abs().max()) for a, b in zip(one, other) if a.numel()), default=0.0)


def apart(one, other):
    """The root of the sum of squared differences of all elements."""
    return sum(float((a.detach().double() - b.detach().double()).square().sum()) for a, b in zip(one, other)) ** 0.5


class Folders:
    """Folders for states, below the current one, which a test removes."""

    def folder(self):
        made = tempfile.TemporaryDirectory(prefix="zoff-test-", dir=".")
        self.addCleanup(made.cleanup)
        return made.name

    def config(self, where, **more):
        """`where`: "dram" or "nvme"."""
        return zoff.Config(nvme=self.folder(), host_memory="1MiB", **more) if where == "nvme" else zoff.Config(**more)
