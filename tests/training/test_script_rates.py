"""Learning rates of a script that goes on from a checkpoint with others than before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR
from torch.utils.data import TensorDataset

from autoscaler.training import session
from autoscaler.training.state.script_rates import rate_ratios

Schedule = Callable[[torch.optim.Optimizer], LRScheduler]


def _cosine(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return CosineAnnealingLR(optimizer, 100)


def _warmed(optimizer: torch.optim.Optimizer) -> LRScheduler:
    parts = [LinearLR(optimizer, 0.5, total_iters=4), CosineAnnealingLR(optimizer, 100)]
    return SequentialLR(optimizer, parts, milestones=[4])


def _run(
    directory: Path, rate: float, epochs: int, schedule: Schedule | None, decay: float = 1.0
) -> float:
    """Train with a learning rate from the checkpoint that is there; return the last one used."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    scheduler = None if schedule is None else schedule(optimizer)
    data = TensorDataset(torch.randn(64, 2), torch.randn(64, 1))
    used = 0.0
    with session(
        model,
        optimizer,
        data,
        batch_size=8,
        scheduler=scheduler,
        checkpoint_directory=str(directory),
    ) as job:
        for inputs, targets in job.batches(epochs=epochs):
            optimizer.param_groups[0]["lr"] *= decay
            used = job.step(((job.model(inputs) - targets) ** 2).mean()).learning_rate
    return used


@pytest.mark.parametrize("schedule", [None, _cosine, _warmed])
def test_a_lower_learning_rate_holds_after_a_checkpoint_of_a_higher(
    tmp_path: Path, schedule: Schedule | None
) -> None:
    for folder in ("same", "lower"):
        _run(tmp_path / folder, 0.1, 1, schedule)
    same = _run(tmp_path / "same", 0.1, 2, schedule)
    assert _run(tmp_path / "lower", 0.01, 2, schedule) == pytest.approx(same / 10)


def test_a_learning_rate_that_the_script_changed_by_hand_stands(tmp_path: Path) -> None:
    first = _run(tmp_path, 0.1, 1, None, decay=0.9)
    assert first == pytest.approx(0.1 * 0.9**8)
    assert _run(tmp_path, 0.1, 2, None, decay=0.9) == pytest.approx(0.1 * 0.9**16)


def test_rates_stand_where_they_can_not_be_compared() -> None:
    assert rate_ratios([0.1], [0.1, 0.1]) is None
    assert rate_ratios([0.0], [0.1]) is None
    assert rate_ratios([0.1], [0.05]) == [0.5]
