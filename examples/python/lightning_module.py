# SPDX-License-Identifier: Apache-2.0
"""lightning_module.py: trains a perceptron with Lightning, from a checkpoint in the second half."""
import sys
import warnings

import lightning
import torch

warnings.filterwarnings("ignore", module="lightning")


class Perceptron(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def training_step(self, batch, _):
        x, y = batch
        loss = (self.net(x) - y).square().mean()
        print(f"step {self.global_step + 1}: loss {loss.item():.5f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.named_parameters(), lr=1e-2)


def main(folder):
    lightning.seed_everything(7, verbose=False)
    inputs = torch.randn(640, 16)
    data = torch.utils.data.TensorDataset(inputs, inputs[:, :1] * inputs[:, 1:2] - inputs[:, 2:3])
    batches = torch.utils.data.DataLoader(data, 32)
    options = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
               "gradient_clip_val": 1.0, "default_root_dir": folder}
    first = lightning.Trainer(max_epochs=1, enable_checkpointing=False, **options)
    first.fit(Perceptron(), batches)
    first.save_checkpoint(folder + "/half.ckpt")
    lightning.Trainer(max_epochs=2, enable_checkpointing=False, **options).fit(Perceptron(), batches, ckpt_path=folder + "/half.ckpt")


if __name__ == "__main__":
    main(sys.argv[1])
