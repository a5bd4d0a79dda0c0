"""Values of `job.step`, and their cost."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import TensorDataset

from autoscaler.domain.job import BatchSpec
from autoscaler.training import session
from autoscaler.training.steps.step import Step
from tests.training.alone import allow

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def _data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(40, 4, generator=generator), torch.randn(40, 1, generator=generator)
    )


def _made() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _steps(epochs: int = 1, **settings: Any) -> list[Step]:
    model, optimizer = _made()
    with session(model, optimizer, _data(), batch_size=16, shuffle=False, **settings) as job:
        return [
            job.step(nn.functional.mse_loss(job.model(inputs), targets))
            for inputs, targets in job.batches(epochs=epochs)
        ]


def test_a_step_says_what_a_tracker_logs() -> None:
    scheduled = torch.optim.lr_scheduler.StepLR
    model, optimizer = _made()
    scheduler = scheduled(optimizer, step_size=1, gamma=0.5)
    inputs, targets = _data().tensors
    first = nn.functional.mse_loss(model(inputs[:16]), targets[:16])
    first.backward()
    norm = math.sqrt(sum(float(each.grad.square().sum()) for each in model.parameters()))
    optimizer.zero_grad()
    with session(
        model,
        optimizer,
        _data(),
        batch_size=16,
        shuffle=False,
        scheduler=scheduler,
        max_grad_norm=0.1,
    ) as job:
        steps = [
            job.step(nn.functional.mse_loss(job.model(x), y)) for x, y in job.batches(epochs=1)
        ]
    assert [step.number for step in steps] == [1, 2, 3]
    assert [step.batch_size for step in steps] == [16, 16, 8]
    assert [step.learning_rate for step in steps] == pytest.approx([0.1, 0.05, 0.025])
    assert all(step.committed and step.is_last and not step.skipped for step in steps)
    assert {step.members for step in steps} == {1}
    assert float(steps[0].loss) == pytest.approx(first.item())
    assert float(steps[0].gradient_norm) == pytest.approx(norm)


def test_micro_steps_are_told_from_steps(monkeypatch) -> None:
    whole = _steps()
    allow(monkeypatch, BatchSpec(16, 16, 6, adaptive=False))
    split = _steps()
    assert [step.is_last for step in split] == [False, False, True] * 3
    assert [step.number for step in split] == [0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert not any(step.committed or step.loss is not None for step in split if not step.is_last)
    last = [step for step in split if step.is_last]
    for step, expected in zip(last, whole, strict=True):
        assert float(step.loss) == pytest.approx(float(expected.loss))


def test_a_skipped_step_says_so() -> None:
    model, optimizer = _made()
    with session(model, optimizer, _data(), batch_size=16) as job:
        steps = [
            job.step(job.model(inputs).mean() * (torch.nan if number == 1 else 1.0))
            for number, (inputs, _) in enumerate(job.batches(epochs=1))
        ]
    assert [step.skipped for step in steps] == [False, True, False]
    assert [step.committed for step in steps] == [True] * 3


class Reads(TorchDispatchMode):
    """Counts numbers that the host reads from tensors."""

    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.count += "_local_scalar_dense" in str(function)
        return function(*arguments, **(keywords or {}))


@pytest.mark.parametrize("parts", [1, 3])
def test_to_say_it_the_host_reads_nothing(monkeypatch, parts: int) -> None:
    """But for the one check in each step that its gradient is finite."""
    allow(monkeypatch, BatchSpec(16, 16, math.ceil(16 / parts), adaptive=False))
    model, optimizer = _made()
    reads = Reads()
    with session(model, optimizer, _data(), batch_size=16) as job, reads:
        for inputs, targets in job.batches(epochs=1):
            step = job.step(nn.functional.mse_loss(job.model(inputs), targets))
    assert reads.count <= 2 * step.number


def test_the_mean_over_one_rank_is_its_own() -> None:
    model, optimizer = _made()
    with session(model, optimizer, _data(), batch_size=16) as job:
        for inputs, targets in job.batches(epochs=1):
            step = job.step(nn.functional.mse_loss(job.model(inputs), targets))
            assert job.mean(step.loss) == pytest.approx(float(step.loss))
        assert job.mean(3.0, weight=7) == 3.0
        assert math.isnan(job.mean(None))
