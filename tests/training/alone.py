"""Sessions in this process, set up as under Castor where that is possible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.job import BatchSpec
from autoscaler.training import TrainingSession, opening, replica
from autoscaler.training.arguments import Script
from autoscaler.training.channel import AgentConnection
from autoscaler.training.opening import Parts, open_parts
from autoscaler.training.reporting import Reporter
from autoscaler.training.watch import present_watch


def allow(monkeypatch: pytest.MonkeyPatch, spec: BatchSpec) -> None:
    """Set the batch specification of the job's file."""
    monkeypatch.setattr(opening, "BatchSpec", lambda: spec)


def decide(monkeypatch: pytest.MonkeyPatch, batch_total: int) -> None:
    """Set the batch with the most goodput, from the next round on."""
    monkeypatch.setattr(replica, "_REDECIDE_SECONDS", 0.0)
    monkeypatch.setattr(replica, "next_batch_total", lambda *arguments: batch_total)


def script(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | list[torch.optim.Optimizer],
    data: Dataset[Any],
    **changes: Any,
) -> Script:
    plain: dict[str, Any] = {
        "batch_size": 16,
        "lr_rule": None,
        "scheduler": None,
        "scaler": None,
        "collate_fn": None,
        "num_workers": 0,
        "max_grad_norm": None,
        "warmup_epochs": 0.0,
        "shuffle": True,
        "drop_last": False,
        "seed": 0,
        "checkpoint_directory": None,
    }
    return Script(model, optimizer, data, **{**plain, **changes})


def opened(its_script: Script, clock: Clock | None = None) -> tuple[TrainingSession, Parts]:
    clock = clock or SystemClock()
    parts = open_parts(its_script, clock)
    return TrainingSession(its_script, parts, clock, present_watch()), parts


class RecordingConnection(AgentConnection):
    """Channel that records its messages in order, in place of an agent."""

    def __init__(self, directory: Path) -> None:
        self.said: list[str] = []
        self.steps: list[int] = []
        self.reports: list[dict[str, Any]] = []
        self.is_complete: bool | None = None
        super().__init__(str(directory / "nobody.sock"), SystemClock())

    def _send(self, message: Any) -> None:
        self.said.append(message["kind"])
        if message["kind"] == "stepped":
            self.steps.append(message["steps"])
        if message["kind"] == "report":
            self.reports.append(message["report"])
        if message["kind"] == "finished":
            self.is_complete = message["is_complete"]


def under_castor(
    directory: Path, its_script: Script, clock: Clock
) -> tuple[TrainingSession, Parts, RecordingConnection]:
    """Return a session with checkpoints in `directory`, and the channel that it reports to."""
    its_script = replace(its_script, checkpoint_directory=str(directory / "checkpoints"))
    job, parts = opened(its_script, clock)
    channel = RecordingConnection(directory)
    assert parts.checkpoints is not None
    parts.channel = channel
    parts.reporter = Reporter(
        channel,
        parts.replica,
        parts.stepper,
        parts.reducer,
        parts.state,
        parts.checkpoints,
        clock,
    )
    return job, parts, channel
