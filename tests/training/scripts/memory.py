"""Linear regression on devices with little memory: large passes run out of memory.

A `PHASE` (forward, backward or loss) of more than `FITS` examples fails from step `FROM` on.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from autoscaler.training import session

FITS = int(os.environ.get("FITS", "1000000"))
FROM = int(os.environ.get("FROM", "0"))
RANK = os.environ.get("LOCAL_RANK", "0")
FALLS_SHORT = os.environ.get("ON_RANK", RANK) == RANK
PHASE = os.environ.get("PHASE", "forward")


class Short(torch.autograd.Function):
    """Identity, except for a backward pass that runs out of memory."""

    @staticmethod
    def forward(context: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        require_memory("backward", len(gradient))
        return gradient


class Model(torch.nn.Module):
    """Two layers with BatchNorm where NORM is set, in DDP's buckets of one layer each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 600)
        self.norm = torch.nn.BatchNorm1d(600) if "NORM" in os.environ else torch.nn.Identity()
        self.second = torch.nn.Linear(600, 600)
        self.last = torch.nn.Linear(600, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        require_memory("forward", len(inputs))
        hidden = Short.apply(self.norm(self.first(inputs)))
        return self.last(self.second(hidden)).squeeze(-1)


steps = 0


def require_memory(phase: str, examples: int) -> None:
    if phase == PHASE and FALLS_SHORT and examples > FITS and steps >= FROM:
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {examples} MiB")


def main() -> None:
    global steps
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(512, 16, generator=generator)
    data = TensorDataset(inputs, inputs.sum(1), torch.arange(512))
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    epochs, step_seconds = int(os.environ["EPOCHS"]), float(os.environ["STEP_SECONDS"])
    path = os.environ["TRACE"] + RANK.replace("0", "")
    is_static = "STATIC_GRAPH" in os.environ
    with (
        open(path, "a") as trace,
        session(model, optimizer, data, batch_size=32, static_graph=is_static) as job,
    ):
        for examples, targets, indices in job.batches(epochs=epochs):
            time.sleep(step_seconds * len(examples) / 32)
            outputs = job.model(examples)
            require_memory("loss", len(examples))
            loss = ((outputs - targets) ** 2).mean()
            step = job.step(loss)
            steps = step.number
            line = {
                "step": step.number,
                "is_last": step.is_last,
                "committed": step.committed,
                "batch": job.batch_size,
                "learning_rate": step.learning_rate,
                "indices": indices.tolist(),
                "weight": float(model.last.weight.detach().double().sum()),
                "holds": loss.grad_fn is not None,
            }
            trace.write(json.dumps(line) + "\n")
            trace.flush()


main()
