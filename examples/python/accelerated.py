# SPDX-License-Identifier: Apache-2.0
"""accelerated.py: trains a perceptron with accelerate: accumulation over two batches, and a state that is saved and loaded."""
import sys

import accelerate
import torch

torch.manual_seed(7)
accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
inputs = torch.randn(640, 16)
batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs[:, :1] * inputs[:, 1:2] - inputs[:, 2:3]), 32)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.named_parameters(), lr=1e-2)
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
for epoch in range(4):
    for x, y in batches:
        with accelerator.accumulate(model):
            loss = (model(x) - y).square().mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    if epoch == 1:
        accelerator.save_state(sys.argv[1])
    print(f"epoch {epoch + 1}: loss {loss.item():.5f}")
accelerator.load_state(sys.argv[1])
for x, y in batches:
    with accelerator.accumulate(model):
        loss = (model(x) - y).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
print(f"epoch 3 again: loss {loss.item():.5f}")
