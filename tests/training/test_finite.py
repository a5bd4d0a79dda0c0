"""Gradients and weights that are not finite: the step is skipped, and no checkpoint is spoilt."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import TensorDataset

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import DivergedError
from autoscaler.domain.job import BatchSpec
from autoscaler.training import TrainingSession, session
from autoscaler.training.gradients.finite import (
    MOST_SKIPPED_IN_A_ROW,
    has_finite_gradients,
    non_finite_names,
)
from autoscaler.training.steps.weights import unit_gradient
from tests.training.alone import allow, opened, script, under_castor
from tests.training.fleet import Fleet, wait_until
from tests.training.traces import assert_replicas_agree, go_on, is_training

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

BAD = 21


def _normalised() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def _examples(bad: float = torch.nan) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(64, 4, generator=generator)
    inputs[BAD] = bad
    return TensorDataset(inputs, torch.randn(64, 1, generator=generator))


def _train(job: TrainingSession, epochs: int, factor: float = 1.0) -> None:
    for inputs, targets in job.batches(epochs=epochs):
        job.step(nn.functional.mse_loss(job.model(inputs), targets) * factor)


@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_step_with_a_bad_example_is_skipped_and_nothing_else_changes(
    bad: float, max_grad_norm: float | None
) -> None:
    data = _examples(bad)
    model, optimizer = _normalised()
    with session(
        model, optimizer, data, batch_size=16, shuffle=False, max_grad_norm=max_grad_norm
    ) as job:
        _train(job, epochs=2)
        counters = job._parts.state.counters
    assert (counters.step, counters.skipped_steps, counters.skipped_in_a_row) == (8, 2, 0)
    plain, plain_optimizer = _normalised()
    for start in (0, 32, 48) * 2:
        inputs, targets = data[start : start + 16]
        plain_optimizer.zero_grad()
        nn.functional.mse_loss(plain(inputs), targets).backward()
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(plain.parameters(), max_grad_norm)
        plain_optimizer.step()
    for (name, ours), theirs in zip(
        model.state_dict().items(), plain.state_dict().values(), strict=True
    ):
        if ours.is_floating_point():
            assert torch.allclose(ours, theirs, atol=1e-6), name


def _moves(job: TrainingSession, bad: float) -> list[bool]:
    """Train two passes, with `bad` in the third loss; return for each step whether it moved."""
    model, moved = job._parts.reducer.bare_model, []
    before = copy.deepcopy(model.state_dict())
    for number, (inputs, targets) in enumerate(job.batches(epochs=2)):
        loss = nn.functional.mse_loss(job.model(inputs), targets)
        step = job.step(loss + bad if number == 2 else loss)
        if step.is_last:
            after = copy.deepcopy(model.state_dict())
            moved.append(any(not torch.equal(after[name], before[name]) for name in before))
            assert step.skipped is not moved[-1]
            before = after
    return moved


@pytest.mark.parametrize("init_scale", [None, 8.0])
@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_step_with_a_loss_that_is_not_finite_is_skipped_though_its_gradient_is(
    bad: float, max_grad_norm: float | None, init_scale: float | None
) -> None:
    scaler = None if init_scale is None else GradScaler("cpu", init_scale=init_scale)
    model, optimizer = _normalised()
    job, parts = opened(
        script(model, optimizer, _examples(0.0), max_grad_norm=max_grad_norm, scaler=scaler)
    )
    assert _moves(job, bad) == [number != 2 for number in range(8)]
    assert (parts.state.counters.step, parts.state.counters.skipped_steps) == (8, 1)


def test_one_bad_loss_of_several_in_a_step_skips_the_step(monkeypatch) -> None:
    allow(monkeypatch, BatchSpec(16, 16, 8))
    job, _ = opened(script(*_normalised(), _examples(0.0)))
    assert _moves(job, torch.nan) == [number != 1 for number in range(8)]


def test_a_bad_loss_of_weight_0_skips_nothing() -> None:
    model, optimizer = _normalised()
    job, parts = opened(script(model, optimizer, _examples(0.0), batch_size=16))
    for number, (inputs, targets) in enumerate(job.batches(epochs=1)):
        loss = nn.functional.mse_loss(job.model(inputs), targets)
        job.step(loss + torch.nan if number == 2 else loss, weight=float(number != 2))
    assert parts.state.counters.skipped_steps == 0
    assert not non_finite_names(model.named_parameters())


def test_a_phase_with_a_bad_loss_moves_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.01) for layer in model]
    job, _ = opened(script(model, optimizers, _examples(0.0)))
    for inputs, targets in job.batches(epochs=1):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        for optimizer, bad in zip(optimizers, (torch.nan, 0.0), strict=True):
            loss = nn.functional.mse_loss(job.model(inputs), targets)
            assert job.step(loss + bad, optimizer=optimizer).skipped is (bad != 0)
        moved = [not torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True)]
        assert moved == [False, False, True, True]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("loss", [0.0, -0.0, -3.5, 60_000.0])
def test_a_finite_loss_begins_its_backward_pass_with_1(kind: torch.dtype, loss: float) -> None:
    given = torch.tensor([loss], dtype=kind)
    assert unit_gradient(given).dtype == kind
    assert unit_gradient(given).tolist() == [1.0]


def test_training_that_diverges_fails_and_its_checkpoint_stays_good(tmp_path: Path) -> None:
    clock = VirtualClock()
    its_script = script(*_normalised(), _examples(0.0))
    job, parts, channel = under_castor(tmp_path, its_script, clock)
    assert parts.checkpoints is not None
    _train(job, epochs=1)
    job._schedule.save(at_once=True)
    good = copy.deepcopy(parts.state.state_dict())
    parts.checkpoint_interval_seconds = 0.0
    with pytest.raises(
        DivergedError,
        match=r"^job\.step\(loss\): the loss or its gradient .* 20 steps in a row, to step 24",
    ) as raised:
        _train(job, epochs=99, factor=torch.nan)
    job.departure.abandon(raised.value)
    assert channel.said[-1] == "diverged"
    assert "finished" not in channel.said
    job, parts, _ = under_castor(tmp_path, script(*_normalised(), _examples(0.0)), clock)
    assert parts.state.counters.step >= 4
    assert parts.state.counters.skipped_in_a_row == 0, "a resumed job gets all its tries"
    for name, value in parts.state.state_dict()["model"].items():
        assert torch.equal(value, good["model"][name]), name


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    job, parts, channel = under_castor(
        tmp_path, script(*_normalised(), _examples(0.0)), VirtualClock()
    )
    assert parts.checkpoints is not None
    _train(job, epochs=1)
    job._schedule.save(at_once=True)
    _train(job, epochs=2)
    with torch.no_grad():
        parts.reducer.bare_model[0].weight[0, 0] = torch.inf
    with pytest.raises(DivergedError, match=r"0\.weight is not finite at step 8"):
        job.finish()
    assert channel.said[-1] == "diverged", "so that it is not tried again"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000000004"]
    assert "finished" not in channel.said


def _diverge(job: TrainingSession) -> None:
    with pytest.raises(DivergedError, match="20 steps in a row") as raised:
        _train(job, epochs=99, factor=torch.nan)
    job.departure.abandon(raised.value)


def test_training_that_diverges_keeps_its_last_finite_weights(tmp_path: Path) -> None:
    clock = VirtualClock()
    job, parts, channel = under_castor(tmp_path, script(*_normalised(), _examples(0.0)), clock)
    assert parts.checkpoints is not None
    _train(job, epochs=1)
    good = copy.deepcopy(parts.state.state_dict()["model"])
    _diverge(job)
    assert channel.said[-2:] == ["report", "diverged"]
    assert channel.reports[-1]["checkpoint"]["step"] == 24
    _, parts, _ = under_castor(tmp_path, script(*_normalised(), _examples(0.0)), clock)
    assert (parts.state.counters.step, parts.state.counters.skipped_steps) == (24, 20)
    for name, value in parts.state.state_dict()["model"].items():
        assert torch.equal(value, good[name]), name


def test_training_that_diverges_saves_no_weights_that_a_checkpoint_has(tmp_path: Path) -> None:
    job, parts, _ = under_castor(tmp_path, script(*_normalised(), _examples(0.0)), VirtualClock())
    _train(job, epochs=1)
    job._schedule.save(at_once=True)
    _diverge(job)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000000004"]
    assert parts.state.counters.step == 24


def test_training_that_diverges_from_the_start_saves_nothing(tmp_path: Path) -> None:
    job, _, _ = under_castor(tmp_path, script(*_normalised(), _examples(0.0)), VirtualClock())
    _diverge(job)
    assert not (tmp_path / "checkpoints").exists()


def test_training_that_diverges_saves_no_weights_that_are_not_finite(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job, parts, channel = under_castor(
        tmp_path, script(*_normalised(), _examples(0.0)), VirtualClock()
    )
    _train(job, epochs=1)
    with torch.no_grad():
        parts.reducer.bare_model[0].weight[0, 0] = torch.inf
    _diverge(job)
    assert "0.weight is not finite at step 24" in caplog.text
    assert not (tmp_path / "checkpoints").exists()
    assert channel.said[-1] == "diverged"


def test_a_buffer_may_be_infinite_on_purpose(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.layer(inputs)
            return result

    model = Masked()
    with session(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        _examples(0.0),
        batch_size=16,
        checkpoint_directory=str(tmp_path),
    ) as job:
        _train(job, epochs=1)
    assert (tmp_path / "step-000000000004").is_dir()


def test_training_in_which_no_step_moved_the_model_is_not_complete() -> None:
    model, optimizer = _normalised()
    with (
        pytest.raises(
            DivergedError, match=r"^job\.step\(loss\): the loss or its gradient .* any of 4 steps"
        ),
        session(model, optimizer, _examples(0.0), batch_size=16) as job,
    ):
        _train(job, epochs=1, factor=torch.nan)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_large_gradients_are_finite_in_every_precision(kind: torch.dtype) -> None:
    parameter = nn.Parameter(torch.ones(1000, dtype=kind))
    parameter.grad = torch.full((1000,), 60_000.0, dtype=kind)
    assert has_finite_gradients([parameter])
    parameter.grad[7] = -torch.inf
    parameter.grad[8] = torch.inf
    assert not has_finite_gradients([parameter])


def test_sparse_gradients_are_checked() -> None:
    embedding = nn.Embedding(5, 2, sparse=True)
    (embedding(torch.tensor([1, 1, 3])).sum() * torch.nan).backward()
    assert not has_finite_gradients(embedding.parameters())


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, checkpoint_interval_seconds=0.5)
    yield fleet
    fleet.stop()


def test_tensors_that_are_not_finite_are_named() -> None:
    largest = torch.finfo(torch.float32).max
    tensors = {
        "good": torch.ones(3),
        "nan": torch.tensor([0.0, torch.nan]),
        "infinite": torch.tensor([torch.inf, -torch.inf], dtype=torch.float16),
        "finite, with an infinite sum": torch.full((4,), largest),
        "sixty-four bits": torch.full((4,), 2.0 * largest, dtype=torch.float64),
        "integers": torch.tensor([2**62, 2**62]),
        "empty": torch.ones(0),
    }
    assert non_finite_names(tensors.items()) == {"nan", "infinite"}
    assert non_finite_names([("integers", tensors["integers"])]) == frozenset()


def test_all_replicas_skip_the_step_that_one_of_them_spoilt(fleet: Fleet) -> None:
    first = fleet.start(EPOCHS="100000", POISON="5")
    second = fleet.start(EPOCHS="100000", POISON="5", SEED="1")
    wait_until(lambda: any(is_training(replica, 2) for replica in fleet.replicas))
    at = first.step
    wait_until(
        lambda: min(first.step, second.step) > at + 64, description="four passes of 16 steps"
    )
    for replica in fleet.replicas:
        replica.kill()
    assert_replicas_agree(fleet)
    counts = {line["step"]: line["skipped"] for line in second.steps()}
    assert all(counts[line["step"]] == line["skipped"] for line in first.steps()[-32:-4])
    by_pass = len(second.steps()) // 16
    skipped = second.steps()[-1]["skipped"] - second.steps()[0]["skipped"]
    assert by_pass - 1 <= skipped <= by_pass + 1, "one step of 16 has the bad example"
    assert second.steps()[-1]["weight"] == second.steps()[-1]["weight"], "weights are numbers"


@pytest.mark.parametrize("instances", [1, 2])
def test_two_ranks_skip_the_step_in_which_one_has_a_bad_loss(fleet: Fleet, instances: int) -> None:
    if instances == 2:
        first = fleet.start(EPOCHS="100000")
        wait_until(lambda: first.step > 0)
    ranks = 3 - instances
    last = fleet.start(ranks=ranks, EPOCHS="100000", BAD_LOSS=f"20 {ranks - 1}")
    wait_until(lambda: any(line["skipped"] for line in last.steps()[:-10]))
    for replica in fleet.replicas:
        replica.kill()
    traces = [replica.steps(rank) for replica in fleet.replicas for rank in range(ranks)]
    at = next(line["step"] for line in traces[-1] if line["skipped"])
    before, skipped, later = (
        [line for trace in traces for line in trace if line["step"] == step and line["committed"]]
        for step in (at - 1, at, at + 5)
    )
    assert [len(lines) for lines in (before, skipped, later)] == [2, 2, 2]
    assert [line["skipped"] for line in before + skipped + later] == [0, 0, 1, 1, 1, 1]
    for lines in (before + skipped, later):
        for line in lines:
            assert line["weights"] == pytest.approx(lines[0]["weights"], abs=1e-6)
    assert skipped[1]["weights"] == before[1]["weights"] != later[1]["weights"]


@pytest.mark.parametrize("checkpoint_interval_seconds", [0.5, 300.0])
def test_replicas_whose_training_diverges_all_fail_and_leave_a_good_checkpoint(
    tmp_path: Path, checkpoint_interval_seconds: float
) -> None:
    fleet = Fleet(tmp_path, checkpoint_interval_seconds=checkpoint_interval_seconds)
    try:
        _diverge_and_resume(fleet)
    finally:
        fleet.stop()


def _diverge_and_resume(fleet: Fleet) -> None:
    poison = fleet.checkpoints.with_name("poison")
    replicas = [
        fleet.start(EPOCHS="100000", POISON_FILE=str(poison), SEED=str(number), ranks=ranks)
        for number, ranks in enumerate((2, 1))
    ]
    wait_until(lambda: any(is_training(replica, 2) for replica in replicas))
    go_on(replicas)
    poison.touch()
    assert [replica.wait(60) for replica in replicas] == [1, 1]
    for replica in replicas:
        assert replica.of_kind("diverged") and not replica.of_kind("finished")
        assert (
            "DivergedError: job.step(loss): the loss or its gradient was not finite in 20 steps"
            in replica.log.read_text()
        )
        assert replica.steps()[-1]["skipped"] == MOST_SKIPPED_IN_A_ROW - 1
    last = replicas[0].steps()[-1]["step"]
    resumed = fleet.start(EPOCHS="100000")
    wait_until(lambda: resumed.step > last, description="the job goes on from its last checkpoint")
    assert resumed.steps()[0]["step"] > 0
