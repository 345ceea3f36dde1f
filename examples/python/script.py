# SPDX-License-Identifier: Apache-2.0
"""script.py: trains a small language model on made-up text, in a plain loop."""
import math
import sys

import torch

torch.manual_seed(7)
WIDTH, TIME, BATCH, STEPS = 64, 32, 8, int(sys.argv[1]) if len(sys.argv) > 1 else 30


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attention = torch.nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, is_causal=True, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(32, WIDTH), torch.nn.Embedding(TIME, WIDTH)
        self.blocks = torch.nn.Sequential(Block(), Block())
        self.head = torch.nn.Linear(WIDTH, 32, bias=False)
        self.head.weight = self.tokens.weight
        torch.nn.init.normal_(self.tokens.weight, std=0.2)

    def forward(self, x, targets):
        logits = self.head(self.blocks(self.tokens(x) + self.places.weight))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


data = torch.randint(0, 5, (4000,)).cumsum(0) % 32
model = Model()
optimizer = torch.optim.AdamW(model.named_parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1, (t + 1) / 10) * (1 + math.cos(math.pi * t / STEPS)) / 2)
for step in range(STEPS):
    at = torch.randint(len(data) - TIME - 1, (BATCH,)).tolist()
    loss = model(torch.stack([data[i:i + TIME] for i in at]), torch.stack([data[i + 1:i + TIME + 1] for i in at]))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(f"step {step + 1}: loss {loss.item():.5f}")
