# SPDX-License-Identifier: Apache-2.0
"""titan.py: trains with torchtitan's containers of optimizers and schedulers, and goes on from a checkpoint of the first ones.

    torchrun --nproc-per-node 2 titan.py FOLDER
"""
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw

dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(16, 63), torch.nn.Tanh(), torch.nn.Linear(63, 63), torch.nn.Tanh(), torch.nn.Linear(63, 1))
for layer in model[::2]:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
config = default_adamw(lr=1e-2)
for step in range(20):
    if step in (0, 10):
        optimizers = config.build(model_parts=[model])
        schedulers = LRSchedulersContainer.Config(warmup_steps=4).build(optimizers=optimizers, training_steps=20)
    if step == 10:
        dcp.load({"optimizer": optimizers, "lr_scheduler": schedulers}, checkpoint_id=sys.argv[1])
    everything = torch.randn(64, 16, generator=torch.Generator().manual_seed(step))
    x = everything[dist.get_rank()::dist.get_world_size()]
    loss = (model(x) - x[:, :1] * x[:, 1:2] + x[:, 2:3]).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizers.step()
    schedulers.step()
    optimizers.zero_grad()
    if step == 9:
        dcp.save({"optimizer": optimizers, "lr_scheduler": schedulers}, checkpoint_id=sys.argv[1])
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        print(f"step {step + 1}: loss {loss.item() / dist.get_world_size():.5f}")
dist.barrier()
dist.destroy_process_group()
