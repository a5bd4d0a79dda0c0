"""A small model in float64, plain or sharded over ranks, and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from autoscaler.clock import SystemClock
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints
from autoscaler.training.state.training_state import Counters, TrainingState

COPIES: Final = {"2x2": 2}
"""Copies of a sharded model, by layout; 1 for layouts that are not here."""


def parts_of(layout: str, width: int = 7) -> dict[str, Any]:
    """Return an untrained model, `plain` or sharded over the world's ranks, and what moves it."""
    torch.manual_seed(0)
    layers = nn.Linear(4, width), nn.LayerNorm(width), nn.Linear(width, 3)
    model = nn.Sequential(*layers).double()
    if layout != "plain":
        ranks, copies = torch.distributed.get_world_size(), COPIES.get(layout, 1)
        mesh = (
            init_device_mesh("cpu", (ranks,))
            if copies == 1
            else init_device_mesh("cpu", (copies, ranks // copies), mesh_dim_names=("c", "s"))
        )
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def state_of(layout: str, width: int = 7) -> TrainingState:
    """Return an untrained state of this layout."""
    return TrainingState(**parts_of(layout, width), counters=Counters(batch_total=8))


def train(state: TrainingState, steps: int) -> None:
    """Train on all ranks with the same examples, which depend on the step alone."""
    (optimizer,) = state._optimizers
    for _ in range(steps):
        torch.manual_seed(state.counters.step)
        state._model(torch.randn(8, 4, dtype=torch.float64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        state.counters.step += 1


def whole_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state of model and optimizer, gathered from all ranks."""
    options = StateDictOptions(full_state_dict=True)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    return {"model": model_state, "optimizer": dict(optimizer_state)["state"]}


def whole(state: TrainingState) -> dict[str, Any]:
    """Return the whole model and optimizer of a state, gathered from all ranks."""
    (optimizer,) = state._optimizers
    return whole_of(state._model, optimizer)


def checkpoints_of(
    ranks: InstanceRanks | None,
    directory: Path,
    layout: str,
    remote: RemoteCheckpoints | None = None,
) -> Checkpoints:
    """Return the checkpoints of a state of this layout."""
    is_sharded = layout != "plain"
    return Checkpoints(directory, 2, SystemClock(), remote, ranks=ranks, is_sharded=is_sharded)


def save(ranks: InstanceRanks | None, directory: Path, layout: str, steps: int) -> None:
    """Train, save a checkpoint while training goes on, and wait for it."""
    state, checkpoints = state_of(layout), checkpoints_of(ranks, directory, layout)
    train(state, steps)
    state.save(checkpoints, at_once=False)
    train(state, 1)
    checkpoints.close()
    assert checkpoints.status.error is None
    assert checkpoints.status.step == steps


def load(ranks: InstanceRanks | None, directory: Path, layout: str) -> dict[str, Any]:
    """Return the whole state that a new session of this layout begins with."""
    state, checkpoints = state_of(layout), checkpoints_of(ranks, directory, layout)
    assert state.restore_newest(checkpoints)
    checkpoints.close()
    return {**whole(state), "step": state.counters.step}


def message_of(work: Callable[[], object]) -> str:
    """Return the message of the error that `work` raises."""
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error was raised")
