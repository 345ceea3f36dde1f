# SPDX-License-Identifier: Apache-2.0
"""cpu_adam.py: AdamW on weights and states that torch owns, for programs that move states themselves. It has no engine: a step is one
call of the library for the parameters with the same numbers and the same count of steps."""
from collections import defaultdict
from ctypes import byref, sizeof

import torch

from . import _api as api
from ._load import lib
from .cohort import DTYPES, increment_versions, is_dense, local
from .errors import check


class CPUAdamW(torch.optim.Optimizer):
    """torch.optim.AdamW for float32 parameters in the memory of the CPU. `state` and state_dict() are those of torch."""

    NAME, DECAY, TYPES = "zoff.CPUAdamW", api.ZOFF_DECAY_DECOUPLED, (torch.float32,)
    TRAINS = "dense float32 on the CPU, and zoff.AdamW has fp32 masters for 16 bits"

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        for group in self.param_groups:
            self._hyper(group)

    def _hyper(self, group):
        hyper = api.zoff_optimizer_hyper()
        lib.zoff_optimizer_hyper_init_sized(byref(hyper), sizeof(hyper), api.ZOFF_OPTIMIZER_ADAM)
        hyper.lr, hyper.eps, hyper.weight_decay = float(group["lr"]), group["eps"], group["weight_decay"]
        hyper.beta1, hyper.beta2 = map(float, group["betas"])
        hyper.decay = self.DECAY
        if lib.zoff_optimizer_step(byref(hyper), 1, 1.0, byref(api.zoff_optimizer_tensor())) < 0:
            raise ValueError(f"{self.NAME}: {lib.zoff_last_error().decode()}")
        return hyper

    def _checked(self, param):
        """The parts of a parameter and of its gradient that this rank has, in one order of elements."""
        part, grad = local(param), local(param.grad)
        for tensor, what in ((part, "parameter"), (grad, "gradient")):
            if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.dtype not in self.TYPES:
                raise ValueError(f"{self.NAME}: a {what} of shape {tuple(param.shape)} is {tensor.dtype}, {tensor.layout}, on {tensor.device}; "
                                 f"it trains {self.TRAINS}")
        if not is_dense(part):
            raise ValueError(f"{self.NAME}: a parameter of shape {tuple(param.shape)} has gaps in memory; make it dense, for example "
                             "by param.data = param.data.contiguous()")
        if grad.stride() != part.stride():
            grad = torch.empty_strided(part.shape, part.stride(), dtype=grad.dtype).copy_(grad)
        return part, grad

    def step(self, closure=None):
        """Update the parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            # All are checked before one is changed.
            updates = [(self._hyper(group), [(param, *self._checked(param)) for param in group["params"] if param.grad is not None])
                       for group in self.param_groups]
            for hyper, entries in updates:
                self._update(hyper, entries)
        return loss

    @staticmethod
    def _new_state(param):
        moments = (torch.zeros_like(param, dtype=torch.float32, memory_format=torch.preserve_format) for _ in range(2))
        return dict(zip(("step", "exp_avg", "exp_avg_sq"), (torch.tensor(0.0), *moments)))

    def _update(self, hyper, entries):
        by_count = defaultdict(list)
        for param, part, grad in entries:
            state = self.state[param]
            if not state:
                state.update(self._new_state(param))
            by_count[int(state["step"]) + 1].append((part, grad, state))
        for t, its in by_count.items():
            tensors = (api.zoff_optimizer_tensor * len(its))()
            for tensor, (part, grad, state) in zip(tensors, its):
                m, v = (self._moment(state, key, part) for key in ("exp_avg", "exp_avg_sq"))
                tensor.struct_size, tensor.count = sizeof(tensor), part.numel()
                tensor.master, tensor.m, tensor.v, tensor.grad = (array.data_ptr() for array in (part, m, v, grad))
                tensor.master_dtype, tensor.grad_dtype = DTYPES[part.dtype], DTYPES[grad.dtype]
            check(lib.zoff_optimizer_step_list(byref(hyper), 0, t, 1.0, tensors, sizeof(api.zoff_optimizer_tensor), len(its)))
            increment_versions([part for part, _, _ in its])
            for _, _, state in its:
                state["step"] += 1

    @staticmethod
    def _moment(state, key, part):
        """A moment in the order of the parameter; a loaded one may have another order, or 16 bits."""
        if state[key].dtype is not torch.float32:
            state[key] = state[key].float()
        moment = local(state[key])
        if moment.stride() != part.stride():
            moment.set_(torch.empty_strided(part.shape, part.stride()).copy_(moment))
        return moment


class CPUAdam(CPUAdamW):
    """torch.optim.Adam, whose weight decay is added to the gradient, in the same way."""

    NAME, DECAY = "zoff.CPUAdam", api.ZOFF_DECAY_L2

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0):
        super().__init__(params, lr, betas, eps, weight_decay)
