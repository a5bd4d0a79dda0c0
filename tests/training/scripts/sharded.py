"""A network sharded by fully_shard that writes its part of each step's weights down.

With PLAIN=1 the same network is not sharded. Its steps must be the same at any number of ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from autoscaler.training import replica_mesh, session
from autoscaler.training.gradients.parts import local_part

EXAMPLES, BATCH = 100, 30
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.02"))
RANK = int(os.environ.get("RANK", "0"))
# From this batch of its own on, rank 1 runs out of memory in the next batch that is not the short
# last one of an epoch.
OUT_OF_MEMORY_AT = int(os.environ.get("OUT_OF_MEMORY_AT", sys.maxsize))
MOST_IN_LAST_BATCH = 5


class Network(nn.Module):
    """Layers with numbers of rows that no number of ranks divides, and BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 7)
        self.norm = nn.LayerNorm(7)
        self.second = nn.Linear(7, 3)
        self.last = nn.Linear(3, 1, bias=False)
        self.register_buffer("count", torch.zeros(()))
        self.passes = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        is_full = len(inputs) > MOST_IN_LAST_BATCH
        if RANK == 1 and self.passes >= OUT_OF_MEMORY_AT and is_full:
            raise torch.OutOfMemoryError("as a device would")
        if self.training:
            self.count += 1
        hidden = torch.tanh(self.norm(self.first(inputs)))
        result: torch.Tensor = self.last(torch.tanh(self.second(hidden)))
        return result


def examples() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(EXAMPLES, 5, generator=generator, dtype=torch.float64)
    targets = torch.randn(EXAMPLES, 1, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, targets, torch.arange(EXAMPLES))


def shard(model: Network) -> None:
    mesh = replica_mesh(copies=int(os.environ.get("COPIES", "1")))
    fully_shard([model.first, model.norm], mesh=mesh)
    fully_shard(model.second, mesh=mesh)
    fully_shard(model, mesh=mesh)


def rehearsal(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def main() -> None:
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Network().double()
    if os.environ.get("PLAIN") != "1":
        shard(model)
    kind = getattr(torch.optim, os.environ.get("OPTIMIZER", "AdamW"))
    optimizer = kind(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    notes = {"taken": 0}
    with (
        open(f"{os.environ['TRACE']}{RANK or ''}", "a") as trace,
        session(
            model,
            optimizer,
            examples(),
            batch_size=BATCH,
            scheduler=scheduler,
            max_grad_norm=0.5,
            state=notes,
            rehearsal=rehearsal,
        ) as job,
    ):
        for inputs, targets, indices in job.batches(epochs=int(os.environ["EPOCHS"])):
            time.sleep(STEP_SECONDS)
            step = job.step(nn.functional.mse_loss(job.model(inputs), targets))
            notes["taken"] = step.number
            line = {
                "step": step.number - 1,
                "committed": step.committed,
                "is_last": step.is_last,
                "indices": indices.tolist(),
                "norm": float(step.gradient_norm) if step.gradient_norm is not None else None,
                "parts": {
                    name: local_part(parameter).tolist()
                    for name, parameter in model.named_parameters()
                },
                "at": time.time(),
                "ranks": dist.get_world_size() if dist.is_initialized() else 1,
            }
            trace.write(json.dumps(line) + "\n")
            trace.flush()
        job.report(taken=notes["taken"])


main()
