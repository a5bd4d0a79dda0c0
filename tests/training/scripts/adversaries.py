"""A generator and a discriminator in 64 bits that step in turns, by losses of the same batch."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils._pytree import tree_leaves
from torch.utils.data import TensorDataset

from autoscaler.training import TrainingSession, session

EXAMPLES, BATCH = 96, 16


class Adversaries(nn.Module):
    """Two networks, of which one is called by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 6))
        self.discriminator = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, name: str, inputs: Tensor) -> Tensor:
        network: Tensor = getattr(self, name)(inputs)
        return network


def data() -> TensorDataset:
    """Return examples, and the noise to generate as many from."""
    generator = torch.Generator().manual_seed(1)
    examples = torch.randn(EXAMPLES, 6, generator=generator, dtype=torch.float64) + 1
    noise = torch.randn(EXAMPLES, 4, generator=generator, dtype=torch.float64)
    return TensorDataset(examples, noise)


def made() -> tuple[Adversaries, list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    model = Adversaries().double()
    discriminator = torch.optim.Adam(model.discriminator.parameters(), lr=0.01, betas=(0.5, 0.9))
    return model, [discriminator, torch.optim.AdamW(model.generator.parameters(), lr=0.02)]


def loss_of_discriminator(model: nn.Module, examples: Tensor, fakes: Tensor) -> Tensor:
    real, fake = model("discriminator", examples), model("discriminator", fakes.detach())
    return softplus(-real).mean() + softplus(fake).mean()


def loss_of_generator(model: nn.Module, fakes: Tensor) -> Tensor:
    return softplus(-model("discriminator", fakes)).mean()


def total(values: Any) -> float:
    """Return the sum of the sizes of all numbers."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    return float(sum(tensor.detach().double().abs().sum() for tensor in tensors))


def seen(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> list[float]:
    """Return sums over the parameters, and over each optimizer's state."""
    states = [total(list(optimizer.state.values())) for optimizer in optimizers]
    return [total(list(model.parameters())), *states]


def trained(
    job: TrainingSession, model: Adversaries, optimizers: list[torch.optim.Optimizer]
) -> Iterator[dict[str, Any]]:
    """Train, and yield a line for each batch."""
    called = model if "BARE" in os.environ else job.model
    killed_in = int(os.environ.get("KILLED_IN", "-1"))
    for number, (examples, noise) in enumerate(job.batches(epochs=int(os.environ["EPOCHS"]))):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.0")))
        fakes = called("generator", noise)
        critic = job.step(loss_of_discriminator(called, examples, fakes), optimizer=optimizers[0])
        loss = job.mean(critic.loss)
        if number == killed_in:
            os.kill(os.getpid(), signal.SIGKILL)
        step = job.step(loss_of_generator(called, fakes), optimizer=optimizers[1])
        yield {
            "step": step.number,
            "committed": step.committed,
            "members": step.members,
            "seen": seen(model, optimizers),
            "loss": loss,
        }


def main() -> None:
    model, optimizers = made()
    path = Path(os.environ["TRACE"] + os.environ.get("LOCAL_RANK", "").replace("0", ""))
    with (
        path.open("a") as trace,
        session(model, optimizers, data(), batch_size=BATCH) as job,
    ):
        for line in trained(job, model, optimizers):
            trace.write(json.dumps(line) + "\n")
            trace.flush()


if __name__ == "__main__":
    main()
