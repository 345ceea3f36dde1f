# SPDX-License-Identifier: Apache-2.0
"""fsdp2.py: trains a model whose weights, gradients and states are cut over ranks by FSDP2.

    torchrun --nproc-per-node 2 fsdp2.py 20
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(16, 63), torch.nn.Tanh(), torch.nn.Linear(63, 63), torch.nn.Tanh(), torch.nn.Linear(63, 1))
for layer in model[::2]:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-2)
for step in range(int(sys.argv[1])):
    everything = torch.randn(64, 16, generator=torch.Generator().manual_seed(step))
    x = everything[dist.get_rank()::dist.get_world_size()]
    loss = (model(x) - x[:, :1] * x[:, 1:2] + x[:, 2:3]).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        print(f"step {step + 1}: loss {loss.item() / dist.get_world_size():.5f}")
dist.barrier()
dist.destroy_process_group()
