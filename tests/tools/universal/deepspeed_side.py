#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deepspeed_side.py: one run of DeepSpeed on the CPU, as a process of its own, for deepspeed_universal.py.

deepspeed_side.py train STAGE TYPE TIED STEPS FOLDER    train STEPS steps, and save and convert a checkpoint after each from the
                                                       second on: FOLDER/uni2, FOLDER/uni3, ...
deepspeed_side.py load STAGE TYPE TIED FOLDER OUT      load what FOLDER/latest_universal names, and write the states to OUT

TYPE is that of the weights; "offload" is bf16 with the states in DRAM. TIED: 1 if the head shares the weights of the embedding.
RANK and WORLD_SIZE may name one of several ranks, which all get the same batches."""
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
for key, alone in (("RANK", "0"), ("WORLD_SIZE", "1")):
    os.environ.setdefault(key, alone)

import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.checkpoint import ds_to_universal  # noqa: E402
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state  # noqa: E402

WORDS, WIDTH, CLASSES, BATCH = 37, 12, 5, 6


class Model(torch.nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = torch.nn.Linear(WIDTH, WORDS if tied else CLASSES, bias=False)
        if tied:
            self.head.weight = self.words.weight
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))

    def forward(self, words, wanted):
        x = self.words(words)
        for layer in self.layers:
            x = torch.tanh(layer(x)) * self.scale
        return torch.nn.functional.cross_entropy(self.head(x).float(), wanted)


def make_engine(stage, kind, tied, universal):
    torch.manual_seed(7)
    config = {"train_micro_batch_size_per_gpu": BATCH, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": stage},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}, "checkpoint": {"load_universal": universal}}
    if kind == "fp16":  # DeepSpeed believes that only some CPUs have it; PyTorch has it on all. The scale doubles with each step
        deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
        config["fp16"] = {"enabled": True, "initial_scale_power": 6, "loss_scale_window": 1, "hysteresis": 2}
    elif kind in ("bf16", "offload"):
        config["bf16"] = {"enabled": True}
    if kind == "offload":
        config["zero_force_ds_cpu_optimizer"] = False  # PyTorch's optimizer: DeepSpeed's own is compiled for a quarter of an hour
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    model = Model(tied)
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def convert(source, target):
    arguments = sys.argv
    sys.argv = ["ds_to_universal", "--input_folder", source, "--output_folder", target, "--num_extract_workers", "1",
                "--num_merge_workers", "1", "--inject_missing_state"]
    ds_to_universal.main(ds_to_universal.parse_arguments())
    sys.argv = arguments


def train(stage, kind, tied, steps, folder):
    engine = make_engine(stage, kind, tied, False)
    chance = torch.Generator().manual_seed(11)
    for step in range(1, steps + 1):
        loss = engine(torch.randint(0, WORDS, (BATCH,), generator=chance), torch.randint(0, CLASSES, (BATCH,), generator=chance))
        engine.backward(loss)
        engine.step()
        if step >= 2:
            engine.save_checkpoint(folder, tag=f"step{step}", client_state={"universal_checkpoint_info": {"universal_checkpoint_version": 0.2}})
            if os.environ["RANK"] == "0":  # save_checkpoint() ends with a barrier
                convert(os.path.join(folder, f"step{step}"), os.path.join(folder, f"uni{step}"))
            deepspeed.comm.barrier()


def load(stage, kind, tied, folder, out):
    engine = make_engine(stage, kind, tied, True)
    engine.load_checkpoint(folder)
    found = {"states": {}, "weights": {}}
    for name, param in engine.module.named_parameters():
        found["states"][name] = {"fp32": safe_get_full_fp32_param(param).clone()}
        for key in ("exp_avg", "exp_avg_sq"):
            found["states"][name][key] = safe_get_full_optimizer_state(param, key).clone()
        if stage < 3:
            found["weights"][name] = param.detach().clone()
    inner = engine.optimizer.optimizer
    found["steps"] = sorted({float(state["step"]) for state in inner.state.values() if "step" in state})
    scaler = engine.optimizer.loss_scaler
    found["scaler"] = {key: float(getattr(scaler, key)) for key in ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")
                       if hasattr(scaler, key)}
    if os.environ["RANK"] == "0":
        torch.save(found, out)


def main():
    role, stage, kind, tied = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1"
    deepspeed.init_distributed(dist_backend="gloo")
    if role == "train":
        train(stage, kind, tied, int(sys.argv[5]), sys.argv[6])
    else:
        load(stage, kind, tied, sys.argv[5], sys.argv[6])


if __name__ == "__main__":
    main()
