# SPDX-License-Identifier: Apache-2.0
"""trainer.py: trains a small GPT-2 on made-up text with the Trainer of Hugging Face."""
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(7)
TIME = 32


class Text(torch.utils.data.Dataset):
    def __init__(self):
        self.data = torch.randint(0, 5, (4000,)).cumsum(0) % 32

    def __len__(self):
        return (len(self.data) - 1) // TIME

    def __getitem__(self, i):
        text = self.data[i * TIME:(i + 1) * TIME]
        return {"input_ids": text, "labels": text}


def main(folder, steps=12):
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=TIME, n_embd=64, n_layer=2, n_head=4))
    args = TrainingArguments(folder, max_steps=steps, per_device_train_batch_size=4, gradient_accumulation_steps=2, max_grad_norm=1.0,
                             learning_rate=1e-3, warmup_steps=4, save_steps=6, logging_steps=1, seed=7, use_cpu=True, report_to=[],
                             disable_tqdm=True, optim="adamw_torch")
    trainer = Trainer(model, args, train_dataset=Text())
    trainer.train(resume_from_checkpoint=folder + "/checkpoint-6" if "--resume" in sys.argv else None)
    for line in trainer.state.log_history:
        if "loss" in line:
            print(f"step {line['step']}: loss {line['loss']:.5f}")
    print("sum of the weights", sum(p.double().sum().item() for p in model.parameters()))


if __name__ == "__main__":
    main(sys.argv[1])
