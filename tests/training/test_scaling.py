"""Half precision: the session scales the loss itself, and refuses one that is scaled already."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import TensorDataset

from autoscaler.clock import VirtualClock
from autoscaler.domain.job import BatchSpec
from autoscaler.training import session
from autoscaler.training.gradients.sampling import SamplingBudget
from tests.training.alone import allow, opened, script, under_castor

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def _data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(64, 4, generator=generator), torch.randn(64, 1, generator=generator)
    )


def _model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _loss(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


@pytest.mark.parametrize("max_grad_norm", [None, 0.5])
def test_training_with_a_scaler_is_training_without(max_grad_norm: float | None) -> None:
    weights = []
    for scaler in (None, GradScaler("cpu", init_scale=2.0**12)):
        model, optimizer = _model()
        with session(
            model,
            optimizer,
            _data(),
            batch_size=16,
            scaler=scaler,
            max_grad_norm=max_grad_norm,
        ) as job:
            for inputs, targets in job.batches(epochs=4):
                job.step(_loss(job.model, inputs, targets))
        weights.append(model.weight.detach())
    assert torch.allclose(*weights, atol=1e-6)


def test_a_step_that_overflows_is_skipped_and_the_scale_falls() -> None:
    model, optimizer = _model()
    optimizer.param_groups[0]["lr"] = 1e-4
    scaler = GradScaler("cpu", init_scale=2.0**127)
    with session(model, optimizer, _data(), batch_size=16, scaler=scaler) as job:
        for inputs, targets in job.batches(epochs=4):
            job.step(_loss(job.model, inputs, targets) * 100)
        counters = job._parts.state.counters
    assert 0 < counters.skipped_steps < 10
    assert scaler.get_scale() == 2.0 ** (127 - counters.skipped_steps)


def test_a_loss_that_is_scaled_already_is_refused() -> None:
    model, optimizer = _model()
    scaler = GradScaler("cpu")
    before = model.weight.detach().clone()
    for given in (None, scaler):
        for change in (1.0, 0.5):
            with (
                pytest.raises(ValueError, match=r"session\(\.\.\., scaler=scaler\)"),
                session(model, optimizer, _data(), batch_size=16, scaler=given) as job,
            ):
                inputs, targets = next(job.batches(epochs=1))
                job.step(scaler.scale(_loss(job.model, inputs, targets)) * change + 1.0)
    assert torch.equal(model.weight, before), "nothing was trained at a wrong rate"


def test_a_scaler_that_is_disabled_changes_nothing() -> None:
    model, optimizer = _model()
    scaler = GradScaler("cpu", enabled=False)
    with session(model, optimizer, _data(), batch_size=16, scaler=scaler) as job:
        for inputs, targets in job.batches(epochs=1):
            job.step(scaler.scale(_loss(job.model, inputs, targets)))
    assert job._parts.state.counters.skipped_steps == 0


def test_what_is_no_scaler_is_refused() -> None:
    model, optimizer = _model()
    with (
        pytest.raises(TypeError, match="scaler: float is not"),
        session(model, optimizer, _data(), batch_size=16, scaler=2.0),  # type: ignore[arg-type]
    ):
        pass


def test_the_noise_scale_is_that_of_unscaled_gradients(monkeypatch) -> None:
    allow(monkeypatch, BatchSpec(16, 32, 32, adaptive=True))
    monkeypatch.setattr(SamplingBudget, "steps_per_sample", lambda *arguments: 1)
    squares = []
    for scaler in (None, GradScaler("cpu", init_scale=2.0**10)):
        model, optimizer = _model()
        job, parts = opened(script(model, optimizer, _data(), scaler=scaler))
        for inputs, targets in job.batches(epochs=1):
            job.step(_loss(job.model, inputs, targets))
        squares.append(parts.stepper.take_squares().small_square)
    assert squares[0] > 0
    assert squares[0] == pytest.approx(squares[1], rel=1e-5)


def test_the_scale_is_part_of_the_checkpoint(tmp_path: Path) -> None:
    scaler = GradScaler("cpu", init_scale=64.0, growth_interval=2)
    job, _, _ = under_castor(tmp_path, script(*_model(), _data(), scaler=scaler), VirtualClock())
    for inputs, targets in job.batches(epochs=1):
        job.step(_loss(job.model, inputs, targets))
    job.finish()
    assert scaler.get_scale() == 256.0
    resumed = GradScaler("cpu", init_scale=64.0, growth_interval=2)
    under_castor(tmp_path, script(*_model(), _data(), scaler=resumed), VirtualClock())
    assert resumed.get_scale() == 256.0
