# SPDX-License-Identifier: Apache-2.0
"""checkpoint_program.py: what dcp.py runs on each rank: FSDP2 with a distributed checkpoint of torch that is saved on the way or loaded
first. Prints a digest and the values of the weights.

    checkpoint_program.py CONFIG|torch FOLDER FIRST LAST save|load float32|bfloat16
"""
import hashlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def main(config, folder, first, last, verb, dtype):
    dist.init_process_group("gloo")
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(7)
    # Uneven shards, and ranks that have nothing of a parameter.
    model = torch.nn.Sequential(torch.nn.Linear(16, 63), torch.nn.Tanh(), torch.nn.Linear(63, 63), torch.nn.Tanh(), torch.nn.Linear(63, 1))
    model.to(getattr(torch, dtype))
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if config == "torch":
        optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-2)
    else:
        import zoff
        optimizer = zoff.AdamW(model.named_parameters(), lr=1e-2, clip_norm=1.0, norm_group=mesh.get_group(), config=zoff.Config(config))
    if verb == "load":
        states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        dcp.load(states, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    for step in range(int(first), int(last)):
        everything = torch.randn(64, 16, generator=torch.Generator().manual_seed(step)).to(getattr(torch, dtype))
        x = everything[dist.get_rank()::dist.get_world_size()]
        (model(x) - x[:, :1] * x[:, 1:2] + x[:, 2:3]).square().mean().backward()
        if config == "torch":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if verb == "save" and step == (int(first) + int(last)) // 2 - 1:
            dcp.save(dict(zip(("model", "optimizer"), get_state_dict(model, optimizer))), checkpoint_id=folder)
    weights = torch.cat([param.full_tensor().detach().float().flatten() for param in model.parameters()])
    if dist.get_rank() == 0:
        print("digest", hashlib.sha256(weights.numpy().tobytes()).hexdigest())
        print("weights", *weights[::97].tolist())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
