# SPDX-License-Identifier: Apache-2.0
"""deepspeed.py: the optimizer step of DeepSpeed's ZeRO-Offload by zoff. Nothing is compiled, and DeepSpeed stays as it is."""
import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.runtime.zero import utils

from . import _api as api
from .cohort import DTYPES
from .cpu_adam import CPUAdamW


class CPUAdam(CPUAdamW, DeepSpeedCPUAdam):
    """DeepSpeedCPUAdam, with its arguments and its states. The moments of 16-bit parameters, too, are in float32."""

    NAME, TYPES = "zoff.deepspeed.CPUAdam", tuple(DTYPES)
    TRAINS = 'dense float32, bfloat16 and float16 on the CPU, so ZeRO needs "offload_optimizer": {"device": "cpu"}'

    def __init__(self, model_params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, adamw_mode=True,
                 fp32_optimizer_states=True):
        if not fp32_optimizer_states:
            raise ValueError(f"{self.NAME}: fp32_optimizer_states is False; leave it out, because moments are in float32")
        # DeepSpeedCPUAdam's own __init__ compiles an extension.
        torch.optim.Optimizer.__init__(self, model_params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                                            "bias_correction": bias_correction, "amsgrad": amsgrad})
        self.adam_w_mode, self.fp32_optimizer_states = adamw_mode, True
        for group in self.param_groups:
            self._hyper(group)

    @property
    def ds_opt_adam(self):
        raise AttributeError(f"{self.NAME} has no step_subgroup() and rollback_subgroup(); use DeepSpeedCPUAdam for SuperOffload")

    def __getstate__(self):
        return {**super().__getstate__(), "adam_w_mode": self.adam_w_mode, "fp32_optimizer_states": True}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        # Torch has cast the moments to the type of the parameter.
        numbers = (number for group in state_dict["param_groups"] for number in group["params"])
        for number, param in zip(numbers, (param for group in self.param_groups for param in group["params"])):
            for key in self.state[param].keys() & {"exp_avg", "exp_avg_sq"} if param.dtype is not torch.float32 else ():
                self.state[param][key] = state_dict["state"][number][key].to(torch.float32, copy=True)

    def _hyper(self, group):
        hyper = super()._hyper(group)
        hyper.decay = api.ZOFF_DECAY_DECOUPLED if self.adam_w_mode else api.ZOFF_DECAY_L2
        hyper.flags = 0 if group["bias_correction"] else api.ZOFF_HYPER_NO_BIAS_CORRECTION
        return hyper

    @staticmethod
    def _new_state(param):
        return {**CPUAdamW._new_state(param), "step": 0}


# ZeRO compares types.
utils.ZERO_SUPPORTED_OPTIMIZERS.append(CPUAdam)
