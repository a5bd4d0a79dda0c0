"""Training of a small network by Accelerate: plain, or elastic with ELASTIC=1.

The main process puts the losses into RESULT. Steps are slow until HURRY exists.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autoscaler.integrations.accelerate import ElasticAccelerator


class Losses:
    """Evaluation loss of each epoch."""

    def __init__(self) -> None:
        self.by_epoch: dict[str, float] = {}

    def state_dict(self) -> dict[str, float]:
        return dict(self.by_epoch)

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.by_epoch = dict(state)


def main() -> None:
    is_elastic = os.environ.get("ELASTIC") == "1"
    epochs = int(os.environ["EPOCHS"])
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(192, 8, generator=generator, dtype=torch.float64)
    targets = inputs.sum(1, keepdim=True).sin()
    options: dict[str, Any] = {
        "gradient_accumulation_steps": 2,
        "cpu": True,
        "dataloader_config": DataLoaderConfiguration(use_seedable_sampler=True),
    }
    accelerator: Any = (
        ElasticAccelerator(max_grad_norm=1.0, **options) if is_elastic else Accelerator(**options)
    )
    model: nn.Module = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).double()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8 * epochs)
    train = DataLoader(TensorDataset(inputs[:128], targets[:128]), batch_size=8, shuffle=True)
    test = DataLoader(TensorDataset(inputs[128:], targets[128:]), batch_size=32)
    model, optimizer, train, scheduler = accelerator.prepare(model, optimizer, train, scheduler)
    test = accelerator.prepare(test)
    losses, steps = Losses(), 0
    accelerator.register_for_checkpointing(losses)
    for epoch in accelerator.epochs(epochs) if is_elastic else range(epochs):
        model.train()
        for batch, wanted in train:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(batch), wanted))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            steps += accelerator.sync_gradients
            if not os.path.exists(os.environ["HURRY"]):
                time.sleep(0.05)
        model.eval()
        with torch.no_grad():
            errors = [
                accelerator.gather_for_metrics((model(batch) - wanted) ** 2)
                for batch, wanted in test
            ]
        losses.by_epoch[str(epoch)] = float(torch.cat(errors).mean())
    if accelerator.is_main_process:
        bare = accelerator.unwrap_model(model)
        result = {
            "losses": losses.by_epoch,
            "steps": steps,
            "weights": [float(parameter.detach().sum()) for parameter in bare.parameters()],
        }
        Path(os.environ["RESULT"]).write_text(json.dumps(result))
    accelerator.end_training()


if __name__ == "__main__":
    main()
