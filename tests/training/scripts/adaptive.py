"""Training with dropout in 64 bits, at a growing batch or at the batches of another run's log."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.training import session

EXAMPLES, BATCH = 960, 32


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(EXAMPLES, 6, generator=generator, dtype=torch.float64)
    noise = 3 * torch.randn(EXAMPLES, 1, generator=generator, dtype=torch.float64)
    indices = torch.arange(EXAMPLES)
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True) + noise, indices)


def main() -> None:
    os.chdir(os.environ.get("JOB_DIRECTORY", "."))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, gamma=0.95)
    path = Path(os.environ["TRACE"] + os.environ.get("LOCAL_RANK", ""))
    settings = {"batch_size": BATCH, "logical_ranks": 4, "scheduler": scheduler}
    taken: list[int] = []
    with path.open("a") as trace, session(model, optimizer, data(), **settings) as job:
        for inputs, targets, indices in job.batches(epochs=int(os.environ["EPOCHS"])):
            time.sleep(float(os.environ.get("STEP_SECONDS", "0.01")))
            taken += indices.tolist()
            step = job.step(nn.functional.mse_loss(job.model(inputs), targets))
            if not step.is_last:
                continue
            line = {
                "step": step.number,
                "committed": step.committed,
                "batch": step.batch_size,
                "rate": step.learning_rate,
                "progress": job.progress_examples,
                "indices": taken,
                "weights": float(
                    sum(parameter.detach().abs().sum() for parameter in model.parameters())
                ),
            }
            trace.write(json.dumps(line) + "\n")
            trace.flush()
            taken = []


if __name__ == "__main__":
    main()
