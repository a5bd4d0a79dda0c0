"""Training on the GPU of its rank, if any, that writes down a hash of its weights at each step.

MODEL names a GPT of `gpt.py`; without it a small network is trained.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from gpt import SHAPES, RandomTokens, as_it_is, gpt_on, mean_loss
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset, default_collate

from autoscaler.training import session
from autoscaler.training.data.loader import Collate

EXAMPLES, WIDTH = 4096, 256
RANK = os.environ.get("LOCAL_RANK", "0")
IS_GPU = os.environ["DEVICE"] == "cuda"
DEVICE = torch.device("cuda", int(RANK)) if IS_GPU else torch.device("cpu")
BATCH = int(os.environ.get("BATCH", "64"))
# Places of elements count modulo this prime, so that elements that change places show.
PLACES = 65_521


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained; `loss` is the mean loss of a batch."""

    model: nn.Module
    data: Dataset[Any]
    collate: Collate
    loss: Callable[[nn.Module, Any], Tensor]


def regression() -> Task:
    """Return a small network and a sum to learn."""
    torch.manual_seed(os.getpid())
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(EXAMPLES, WIDTH, generator=generator)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    layers = nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()
    model = nn.Sequential(*layers, nn.Linear(1024, 1)).to(DEVICE)

    def loss(called: nn.Module, batch: list[Tensor]) -> Tensor:
        features, targets = batch
        return nn.functional.mse_loss(called(features.to(DEVICE)), targets.to(DEVICE))

    return Task(model, data, default_collate, loss)


def language(name: str) -> Task:
    """Return the GPT of that name and random tokens."""
    return Task(
        gpt_on(DEVICE, name, seed=os.getpid()),
        RandomTokens(SHAPES[name], EXAMPLES),
        as_it_is,
        lambda called, batch: mean_loss(called, batch, DEVICE),
    )


def state_of(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Yield the tensors of the optimizer's state."""
    for values in optimizer.state.values():
        yield from (value for value in values.values() if isinstance(value, Tensor))


def sum_of_bits(values: Tensor) -> Tensor:
    """Return a sum over the bits of all elements, each times its place; exact on any device."""
    bits = values.detach().flatten().view(torch.int32).long()
    places = torch.arange(len(bits), device=bits.device).remainder_(PLACES).add_(1)
    return (bits * places).sum()


def digest(model: nn.Module) -> str:
    """Return a hash of the weights, whose bits are summed on their device."""
    sums = torch.stack([sum_of_bits(parameter) for parameter in model.parameters()])
    return hashlib.sha256(sums.cpu().numpy().tobytes()).hexdigest()


def main() -> None:
    """Train until somebody ends it."""
    name = os.environ.get("MODEL")
    task = regression() if name is None else language(name)
    model, optimizer = task.model, torch.optim.Adam(task.model.parameters(), lr=1e-4)
    path = f"{os.environ['TRACE']}{RANK.replace('0', '')}"
    opened = session(
        model,
        optimizer,
        task.data,
        batch_size=BATCH,
        collate_fn=task.collate,
        across=os.environ["ACROSS"],
    )
    with open(path, "a") as trace, opened as job:
        state = job._parts.state
        for batch in job.batches(epochs=10**9):
            before = state.counters.step
            job.step(task.loss(job.model, batch))
            devices = {str(tensor.device) for tensor in state_of(optimizer)}
            line = {
                "step": before,
                "committed": state.counters.step > before,
                "at": time.time(),
                "replicas": job._parts.replica.agreement.replicas,
                "weights": digest(model),
                "devices": sorted(devices - {"cpu", str(DEVICE)}),
            }
            trace.write(json.dumps(line) + "\n")
            trace.flush()


main()
