# SPDX-License-Identifier: Apache-2.0
"""torchtitan.py: torchtitan's container of optimizers, with those of zoff."""
from collections import defaultdict
from dataclasses import dataclass

import torchtitan.components.optimizer as titan

from . import optim

NAMES = ("AdamW", "Adam", "Adagrad", "Lion", "Muon", "SGD")


class Optimizers(titan.OptimizersContainer):
    """OptimizersContainer in which "AdamW" is zoff.AdamW, and so on. Arguments of these, such as `config`, are in
    `optimizer_factory_kwargs_by_name`."""

    @dataclass(kw_only=True, slots=True)
    class Config(titan.OptimizersContainer.Config):
        pass

    @staticmethod
    def _resolve_optimizer_factory(name):
        if name not in NAMES:
            raise ValueError(f'zoff.torchtitan.Optimizers: optimizer_name is "{name}"; it must be one of {", ".join(NAMES)}')
        return getattr(optim, name)

    def load_state_dict(self, state_dict):
        """Take the states by their names: torchtitan would look for those in `state` of each optimizer, which has none."""
        states = defaultdict(dict)
        for key, value in state_dict.items():
            kind, _, rest = key.partition(".")
            name, _, key = rest.rpartition(".")
            if kind == "state":
                states[name][key] = value
        for optimizer in self.optimizers:
            groups, names = [], []
            for group in optimizer.param_groups:
                its = group["param_names"]
                saved = {key: state_dict[f"param_groups.{its[0]}.{key}"] for key in group if key not in ("params", "param_names")}
                groups.append({**saved, "params": list(range(len(names), len(names) + len(its)))})
                names += its
            optimizer.load_state_dict({"state": {number: states[name] for number, name in enumerate(names) if name in states},
                                       "param_groups": groups})
