"""Two networks in 64 bits, moved by an optimizer each; all of their state is written down."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR
from torch.utils._pytree import tree_leaves
from torch.utils.data import TensorDataset

from autoscaler.training import TrainingSession, session

EXAMPLES, BATCH = 96, 16


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(EXAMPLES, 6, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def made() -> tuple[nn.Module, list[torch.optim.Optimizer], list[StepLR]]:
    """Return a model, Muon for its matrix and AdamW for the rest, and a schedule of each."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    matrix, *rest = model.parameters()
    muon = torch.optim.Muon([matrix], lr=0.02)
    adam = torch.optim.AdamW(rest, lr=0.01)
    return model, [muon, adam], [StepLR(muon, 5, gamma=0.8), StepLR(adam, 3, gamma=0.9)]


def total(values: Any) -> float:
    """Return the sum of the sizes of all numbers."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    return float(sum(tensor.detach().double().abs().sum() for tensor in tensors))


def trained(
    job: TrainingSession, model: nn.Module, optimizers: list[torch.optim.Optimizer]
) -> Iterator[dict[str, Any]]:
    """Train, and yield a line for each step."""
    for inputs, targets in job.batches(epochs=int(os.environ.get("EPOCHS", "4"))):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.0")))
        step = job.step(nn.functional.mse_loss(job.model(inputs), targets))
        yield {
            "step": step.number,
            "committed": step.committed,
            "members": step.members,
            "weights": total(list(model.parameters())),
            "states": [total(list(optimizer.state.values())) for optimizer in optimizers],
            "rates": [optimizer.param_groups[0]["lr"] for optimizer in optimizers],
        }


def main() -> None:
    model, optimizers, schedulers = made()
    path = Path(os.environ["TRACE"] + os.environ.get("LOCAL_RANK", ""))
    with (
        path.open("a") as trace,
        session(model, optimizers, data(), batch_size=BATCH, scheduler=schedulers) as job,
    ):
        for line in trained(job, model, optimizers):
            trace.write(json.dumps(line) + "\n")
            trace.flush()


if __name__ == "__main__":
    main()
