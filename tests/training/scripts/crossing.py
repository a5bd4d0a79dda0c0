"""One rank of several instances: some steps, whose gradients and parameters go to a file.

The test process calls `steps` alone: the same steps of all ranks' examples in one place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import AllreduceOptions, ProcessGroupGloo
from torch.amp.grad_scaler import GradScaler

from autoscaler.clock import SystemClock
from autoscaler.training.collectives.reducer import Reducer
from autoscaler.training.collectives.routes import can_use_rails
from autoscaler.training.collectives.world import PendingSum
from autoscaler.training.data.orders import Shuffled
from autoscaler.training.data.sampler import ElasticSampler, RankShare, share
from autoscaler.training.gradients.preconditioner import Preconditioner

EXAMPLES = 31
STEPS = 4
_TIMEOUT = timedelta(seconds=60)


class Branching(nn.Module):
    """Model that uses one layer on the first rank, another on the last, and one on no rank."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
        self.of_first = nn.Conv2d(3, 3, 2).to(memory_format=torch.channels_last)
        self.of_last = nn.Conv2d(3, 3, 2)
        self.of_none = nn.Linear(3, 3)
        # Larger than DDP's first bucket, so that there are several.
        self.wide = nn.Linear(48, 3000)
        self.head = nn.Linear(3000, 1)

    def forward(self, inputs: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
        hidden = torch.tanh(self.body(inputs))
        if rank == 0:
            hidden = hidden + nn.functional.pad(self.of_first(hidden), (0, 1, 0, 1))
        elif rank == ranks - 1:
            hidden = hidden + nn.functional.pad(self.of_last(hidden), (0, 1, 0, 1))
        result: torch.Tensor = self.head(torch.tanh(self.wide(hidden.flatten(1)))).mean(dim=1)
        return result


def made() -> tuple[Branching, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    model = Branching().double()
    inputs = torch.randn(EXAMPLES * STEPS, 2, 5, 5, dtype=torch.float64)
    return model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), inputs


def shares(step: int, ranks: int) -> list[RankShare]:
    """Return the examples of each rank in two micro-steps: 31 over 2 to 5 ranks, never evenly."""
    indices = ElasticSampler(Shuffled(EXAMPLES * STEPS, 0)).take(0, step * EXAMPLES, EXAMPLES)
    return [share(indices, rank, ranks, 2) for rank in range(ranks)]


def move(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Clip the gradients and step; return the clipped gradients."""
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    optimizer.step()
    optimizer.zero_grad()
    return gradients


def in_one_place(ranks: int) -> list[dict[str, torch.Tensor]]:
    model, optimizer, inputs = made()
    states = []
    for step in range(STEPS):
        for rank, part in enumerate(shares(step, ranks)):
            for indices, weight in zip(part.micro_steps, part.weights, strict=True):
                loss = model(inputs[list(indices)], rank, ranks).square().mean()
                (loss * weight).backward()
        states.append(move(model, optimizer))
    states.append(
        {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    )
    return states


def _rail(directory: Path, local_rank: int, instance: int, instances: int) -> ProcessGroupGloo:
    store = dist.FileStore(str(directory / f"rail{local_rank}"), instances)
    return ProcessGroupGloo(store, instance, instances, _TIMEOUT)


def _sum_over(rail: ProcessGroupGloo) -> Callable[[torch.Tensor], PendingSum]:
    return lambda tensor: PendingSum(rail.allreduce([tensor], AllreduceOptions()).wait)


def _on_rank(
    directory: Path, ranks_by_instance: Sequence[int], instance: int, local_rank: int
) -> None:
    local_ranks, instances = ranks_by_instance[instance], len(ranks_by_instance)
    store = dist.FileStore(str(directory / f"instance{instance}"), local_ranks)
    dist.init_process_group("gloo", store=store, rank=local_rank, world_size=local_ranks)
    has_rails = os.environ["RAILS"] == "1" and can_use_rails(ranks_by_instance)
    rail = None
    if instances > 1 and (has_rails or local_rank == 0):
        rail = _rail(directory, local_rank, instance, instances)
    sum_over_rail = _sum_over(rail) if rail is not None else None
    model, optimizer, inputs = made()
    reducer = Reducer(model, SystemClock(), sum_over_rail, Preconditioner(optimizer))
    reducer.take_route(ranks_by_instance, instance, has_rails)
    rank, ranks = sum(ranks_by_instance[:instance]) + local_rank, sum(ranks_by_instance)
    scaler = GradScaler("cpu", init_scale=2.0**10)
    states = []
    for step in range(STEPS):
        part = shares(step, ranks)[rank]
        last = len(part.micro_steps) - 1
        for number, (indices, weight) in enumerate(
            zip(part.micro_steps, part.weights, strict=True)
        ):
            reducer.synchronises = number == last
            loss = reducer.model(inputs[list(indices)], rank, ranks).square().mean()
            scaler.scale(loss * weight).backward()  # type: ignore[no-untyped-call]
        reducer.end_sums()
        users = torch.tensor(reducer.used())
        if rail is not None and local_rank == 0:
            _sum_over(rail)(users).wait()
        dist.broadcast(users, src=0)
        reducer.take_gradients_of_others(users.tolist())
        scaler.unscale_(optimizer)
        states.append(move(model, optimizer))
        scaler.update()
    states.append(
        {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    )
    torch.save(states, directory / f"found{rank}")
    reducer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    _on_rank(
        Path(os.environ["DIRECTORY"]),
        [int(ranks) for ranks in os.environ["RANKS"].split(",")],
        int(os.environ["INSTANCE"]),
        int(os.environ["LOCAL"]),
    )
