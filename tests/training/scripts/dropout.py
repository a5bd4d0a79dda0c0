"""Dropout in 64 bits, with an average of the weights, and with logical ranks on request."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

from autoscaler.training.session import TrainingSession, session

EXAMPLES, BATCH = 96, 16


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(EXAMPLES, 6, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = nn.Linear(6, 16), nn.Dropout(0.5), nn.Tanh(), nn.Linear(16, 1)
    model = nn.Sequential(*layers).double()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def total(model: nn.Module) -> float:
    return float(sum(each.detach().abs().sum() for each in model.parameters()))


def trained(
    job: TrainingSession, model: nn.Module, average: AveragedModel, own: dict[str, Any]
) -> Any:
    """Train on, and yield a line for each step that was committed."""
    for inputs, targets in job.batches(epochs=int(os.environ.get("EPOCHS", "4"))):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.0")))
        mask = torch.rand(3).tolist()
        outputs = job.model(inputs)
        step = job.step(nn.functional.mse_loss(outputs, targets))
        if step.committed:
            average.update_parameters(model)
            own["seen"] += step.batch_size
        yield {
            "step": step.number,
            "committed": step.committed,
            "members": step.members,
            "weights": total(model),
            "average": total(average),
            "seen": own["seen"],
            "mask": mask,
        }


def opened(model: nn.Module, optimizer: torch.optim.Optimizer, own: dict[str, Any]) -> Any:
    logical = int(os.environ.get("LOGICAL_RANKS", "0")) or None
    return session(model, optimizer, data(), batch_size=BATCH, logical_ranks=logical, state=own)


def main() -> None:
    model, optimizer = made()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    own: dict[str, Any] = {"average": average, "seen": 0}
    path = Path(os.environ["TRACE"] + os.environ.get("LOCAL_RANK", ""))
    with path.open("a") as trace, opened(model, optimizer, own) as job:
        for line in trained(job, model, average, own):
            trace.write(json.dumps(line) + "\n")
            trace.flush()


if __name__ == "__main__":
    main()
