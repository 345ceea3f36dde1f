# SPDX-License-Identifier: Apache-2.0
"""zoff: optimizers for PyTorch whose states are in DRAM or in files on NVMe.

    optimizer = zoff.AdamW(model.named_parameters(), lr=1e-3, config=zoff.Config(nvme="/mnt/nvme", host_memory="2GiB"))
"""
import importlib

from . import _messages
from ._api import VERSION as __version__
from .config import Config
from .errors import Comm, Corrupt, Error, Io, NoMemory, NoSpace, Unsupported

_OPTIMIZERS = ("Adagrad", "Adam", "AdamW", "CPUAdam", "CPUAdamW", "Lion", "Muon", "SGD", "StepInfo")
__all__ = ["Comm", "Config", "Corrupt", "Error", "Io", "NoMemory", "NoSpace", "Unsupported", "__version__", *_OPTIMIZERS]

_messages.begin()


def __getattr__(name):
    """The optimizers and zoff.torch need torch, which is imported when the first one is used."""
    if name != "torch" and name not in _OPTIMIZERS:
        raise AttributeError(f"module 'zoff' has no attribute '{name}'")
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name == "torch":
            error = ModuleNotFoundError(f"zoff.{name} needs torch 2.4 or newer, which is not installed: pip install torch", name="torch")
        raise error from None
    if name == "torch":
        return importlib.import_module("zoff.torch")
    from . import cpu_adam, optim

    return getattr(cpu_adam if name.startswith("CPU") else optim, name)
