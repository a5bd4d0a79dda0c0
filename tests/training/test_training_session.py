"""Scripts without any Castor about, and what they may ask for."""

from __future__ import annotations

import errno
import itertools
import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import CheckpointError
from autoscaler.domain.goodput import (
    BatchBounds,
    LocalityParameters,
    NoiseScale,
    PipelineParameters,
    ShardedParameters,
    StepParameters,
    ThroughputParameters,
)
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import TrainingDirective
from autoscaler.goodput.batch_choice import next_batch_total, split_batch, within
from autoscaler.training import TrainingSession, session
from autoscaler.training import training_session as session_module
from autoscaler.training.channel import directive_from
from autoscaler.training.data.loader import Loader
from autoscaler.training.gradients.sampling import SamplingBudget
from autoscaler.training.state import checkpoint_writing
from tests.training.alone import allow, decide, opened, script, under_castor
from tests.training.fleet import Fleet, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Numbered(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), float(index)), index


def _model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=1e-5)


@pytest.mark.parametrize("workers", [0, 2])
def test_each_epoch_takes_each_example_once(workers: int) -> None:
    model, optimizer = _model()
    taken: list[Counter[int]] = []
    with session(model, optimizer, Numbered(), batch_size=32, num_workers=workers) as job:
        for _ in job.epochs(3):
            taken.append(Counter())
            for inputs, indices in job.batches():
                taken[-1].update(indices.tolist())
                job.step(job.model(inputs).mean())
    assert taken == [Counter(range(100))] * 3


def test_it_trains_as_a_plain_loop_does() -> None:
    inputs, targets = torch.randn(96, 3), torch.randn(96, 1)
    data = TensorDataset(inputs, targets)
    model, optimizer = _model()
    with session(model, optimizer, data, batch_size=32, shuffle=False) as job:
        for x, y in job.batches(epochs=2):
            job.step(nn.functional.mse_loss(job.model(x), y))
    plain, plain_optimizer = _model()
    for _ in range(2):
        for start in range(0, 96, 32):
            plain_optimizer.zero_grad()
            part = slice(start, start + 32)
            nn.functional.mse_loss(plain(inputs[part]), targets[part]).backward()
            plain_optimizer.step()
    assert torch.allclose(model.weight, plain.weight, atol=1e-7)


def test_the_schedule_and_clipping_are_the_users() -> None:
    model, optimizer = _model()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.1)
    with session(
        model, optimizer, Numbered(), batch_size=25, scheduler=scheduler, max_grad_norm=1e-9
    ) as job:
        before = model.weight.clone()
        for inputs, _ in job.batches(epochs=1):
            job.step(job.model(inputs).mean())
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-6)
    assert torch.allclose(model.weight, before, atol=1e-12)


def test_it_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    for epochs in (1, 3):
        model, optimizer = _model()
        seen = []
        with session(
            model, optimizer, Numbered(), batch_size=50, checkpoint_directory=str(tmp_path)
        ) as job:
            for inputs, _ in job.batches(epochs=epochs):
                seen.append(job.epoch)
                job.step(job.model(inputs).mean())
    assert seen == [1, 1, 2, 2]


def test_a_dataset_that_has_become_shorter_begins_its_next_pass(tmp_path: Path) -> None:
    for examples, steps in ((100, 4), (40, 3)):
        data, taken = TensorDataset(torch.ones(examples, 3), torch.arange(examples)), list[int]()
        job, parts = opened(script(*_model(), data, checkpoint_directory=str(tmp_path)))
        for inputs, indices in itertools.islice(job.batches(epochs=9), steps):
            taken += indices.tolist()
            job.step(job.model(inputs).mean())
        job.finish()
    assert sorted(taken) == list(range(40))
    assert (parts.state.counters.pass_index, parts.state.counters.position) == (2, 0)


def test_misuse_is_told_in_one_line() -> None:
    model, optimizer = _model()
    with session(model, optimizer, Numbered(), batch_size=10) as job:
        with pytest.raises(RuntimeError, match="once for each batch"):
            job.step(torch.tensor(0.0))
        with pytest.raises(RuntimeError, match="the number of epochs"):
            next(iter(job.batches()))
        batches = job.batches(epochs=1)
        next(batches)
        with pytest.raises(RuntimeError, match="must be called for every batch"):
            next(batches)


def _sizes_of_batch_norm(examples: int, batch: int, drop_last: bool) -> list[int]:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(examples, 3))
    sizes = []
    with session(model, optimizer, data, batch_size=batch, drop_last=drop_last) as job:
        for (inputs,) in job.batches(epochs=2):
            sizes.append(len(inputs))
            job.step(job.model(inputs).square().mean())
        assert job.epoch == 2
    return sizes


def test_a_pass_does_not_end_in_a_single_example_for_batch_norm() -> None:
    assert _sizes_of_batch_norm(65, 64, drop_last=False) == [63, 2] * 2
    assert _sizes_of_batch_norm(5, 2, drop_last=False)[:4] == [2, 3] * 2


def test_examples_that_fill_no_step_are_left_out_on_request() -> None:
    assert _sizes_of_batch_norm(65, 64, drop_last=True) == [64] * 2
    assert _sizes_of_batch_norm(70, 32, drop_last=True) == [32, 32] * 2


def test_what_can_not_be_trained_on_is_refused() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self):
            return iter(range(3))

    model, optimizer = _model()
    with (
        pytest.raises(TypeError, match="needs len"),
        session(model, optimizer, Stream(), batch_size=1),
    ):
        pass
    with (
        pytest.raises(ValueError, match="lr_rule"),
        session(model, optimizer, Numbered(), batch_size=1, lr_rule="warp"),
    ):
        pass
    with (
        pytest.raises(ValueError, match="batch_size=0"),
        session(model, optimizer, Numbered(), batch_size=0),
    ):
        pass


def test_it_needs_no_torchft_nor_a_server_to_train_alone() -> None:
    code = (
        "import sys; import autoscaler.training.training_session;"
        "print([name for name in ('torchft', 'scipy', 'sqlalchemy', 'fastapi', 'optuna', "
        "'pydantic', 'providers', 'hpo') if sys.modules.get(name)])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "throughput",
    [
        None,
        ThroughputParameters(0.1, 1e-4, 0.05, 1e-3, 0.01, 1e-3, 1.5),
        LocalityParameters(0.1, 1e-4, 0.05, 1e-3, 0.01, 1e-3, 0.2, 0.1, 1.5, near_instances=4),
        PipelineParameters(0.1, 1e-4, 0.0, 0.05, 1e-3, 0.01, 1e-3, 1.5, stages=4, microbatches=16),
        ShardedParameters(0.1, 1e-4, 0.05, 0.2, 1.0, 0.05, 1e-3, 0.01, 1e-3, 1.5, shard=8),
    ],
)
def test_a_directive_arrives_with_the_model_of_the_job(throughput: StepParameters | None) -> None:
    directive = TrainingDirective(True, throughput, checkpoint_interval_seconds=75.0)
    assert directive_from(json.loads(json.dumps(asdict(directive)))) == directive


def test_a_directive_of_an_agent_that_knows_of_no_intervals() -> None:
    assert directive_from({"drain": False}) == TrainingDirective()


def test_parameters_of_no_model_are_refused() -> None:
    with pytest.raises(ValueError, match="no throughput model has the parameters speed"):
        directive_from({"drain": False, "throughput": {"speed": 1.0}})


SLOW_START = ThroughputParameters(0.1, 1e-4, 0.05, 1e-3, 0.01, 1e-3, 1.5)
BOUNDS = BatchBounds(initial=32, maximum=256, device_maximum=64, adaptive=True)


def test_the_batch_grows_only_on_knowledge() -> None:
    noisy = NoiseScale(32, gradient_square=1.0, gradient_variance=20.0, log_standard_deviation=0.1)
    assert next_batch_total(32, BOUNDS, None, noisy, (1, 1)) == 32
    assert next_batch_total(32, BOUNDS, SLOW_START, None, (1, 1)) == 32
    grown = next_batch_total(32, BOUNDS, SLOW_START, noisy, (2, 2))
    assert 32 < grown <= 256
    assert next_batch_total(grown, BOUNDS, SLOW_START, noisy, (2, 2)) == grown, "it stays"
    clean = NoiseScale(32, 1.0, 1e-6, 0.1)
    assert next_batch_total(grown, BOUNDS, SLOW_START, clean, (2, 2)) < grown, "it may shrink"
    useless = NoiseScale(32, 0.0, 1.0, 0.1)
    assert next_batch_total(64, BOUNDS, SLOW_START, useless, (2, 2)) == 64


@pytest.mark.parametrize("total", [1, 7, 64, 129, 1000])
@pytest.mark.parametrize("devices", [1, 3, 8])
def test_a_split_batch_fits_its_devices(total: int, devices: int) -> None:
    split = split_batch(total, devices, device_maximum=16)
    assert split.device <= 16
    assert split.device * devices * (split.accumulation + 1) >= total


@given(
    current=st.integers(1, 2000),
    initial=st.integers(1, 300),
    room=st.integers(0, 500),
    device_maximum=st.integers(1, 300),
    adaptive=st.booleans(),
    noise_examples=st.floats(1e-3, 1e6),
    devices=st.integers(1, 700),
)
def test_the_batch_never_leaves_its_bounds(
    current: int,
    initial: int,
    room: int,
    device_maximum: int,
    adaptive: bool,
    noise_examples: float,
    devices: int,
) -> None:
    """Published code returned 2048 where the maximum was 1024 and fewer examples than devices."""
    bounds = BatchBounds(initial, initial + room, device_maximum, adaptive)
    noise = NoiseScale(initial, 1.0, noise_examples / initial, 0.1)
    found = next_batch_total(current, bounds, SLOW_START, noise, (1, devices))
    assert initial <= found <= (bounds.maximum if adaptive else initial)
    assert initial <= within(bounds, current) <= bounds.maximum


def _full(*arguments: object) -> bytes:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("leaves", [False, True])
def test_a_last_state_that_is_not_saved_is_a_failure(
    tmp_path: Path, monkeypatch, leaves: bool
) -> None:
    clock = VirtualClock()
    job, parts, channel = under_castor(tmp_path, script(*_model(), Numbered()), clock)
    monkeypatch.setattr(checkpoint_writing, "_seal", _full)
    if leaves:
        channel._directive = TrainingDirective(drain=True)
    with pytest.raises(CheckpointError, match=r"last state is not saved.*No space left"):
        _train(job, epochs=4)
        job.finish()
    assert (parts.state.counters.step < 28) == leaves
    assert clock.monotonic() >= 30.0, "it was tried for a while"
    assert not {"finished", "left"} & set(channel.said)


def test_a_declared_phase_is_told_and_ended_after_an_error_too(tmp_path: Path) -> None:
    job, _, channel = under_castor(tmp_path, script(*_model(), Numbered()), VirtualClock())
    with pytest.raises(KeyError), job.phase("evaluation", 600):
        assert channel.said == ["phase"]
        raise KeyError
    assert channel.said == ["phase", "phase"]
    with pytest.raises(ValueError, match="above 0"), job.phase("evaluation", 0):
        pass


def test_a_phase_without_castor_changes_nothing() -> None:
    job, _ = opened(script(*_model(), Numbered()))
    with job.phase("evaluation", 600):
        pass


def test_a_last_state_is_saved_once_there_is_room(tmp_path: Path, monkeypatch) -> None:
    clock = VirtualClock()
    job, parts, channel = under_castor(tmp_path, script(*_model(), Numbered()), clock)
    _train(job, epochs=1)
    seal, tries = checkpoint_writing._seal, []

    def full_at_first(directory: Path, *arguments: Any) -> bytes:
        tries.append(directory)
        return seal(directory, *arguments) if len(tries) > 3 else _full()

    monkeypatch.setattr(checkpoint_writing, "_seal", full_at_first)
    job.finish()
    assert parts.checkpoints is not None
    assert parts.checkpoints.status.step == parts.state.counters.step
    assert channel.said[-1] == "finished"


def test_checkpoints_are_taken_as_often_as_the_controller_says_last(tmp_path: Path) -> None:
    clock = VirtualClock()
    job, parts, channel = under_castor(tmp_path, script(*_model(), Numbered()), clock)
    assert parts.checkpoints is not None
    parts.checkpoint_interval_seconds = 300.0
    batches, saved_seconds = job.batches(epochs=1000), dict[int, float]()
    for told, kept_seconds in ((None, 300.0), (20.0, 20.0), (60.0, 60.0), (None, 300.0)):
        channel._directive = TrainingDirective(checkpoint_interval_seconds=told)
        for _ in range(int(3 * kept_seconds)):
            inputs, _ = next(batches)
            clock.advance(1.0)
            job.step(job.model(inputs).mean())
            parts.checkpoints.wait()
            if parts.checkpoints.status.step is not None:
                saved_seconds.setdefault(parts.checkpoints.status.step, clock.monotonic())
        between = np.diff(list(saved_seconds.values()))[-1]
        assert kept_seconds <= between <= kept_seconds + 3.0
    assert parts.checkpoints.status.pause_seconds == 0.0, "training stood still for no time"


def test_a_job_that_starts_again_after_its_end_ends_well(tmp_path: Path) -> None:
    for _ in range(2):
        job, _, channel = under_castor(tmp_path, script(*_model(), Numbered()), VirtualClock())
        _train(job, epochs=1)
        job.finish()
        assert channel.said[-2:] == ["report", "finished"]
    assert channel.steps == [0]


def test_a_script_that_takes_no_batch_ends_well(tmp_path: Path) -> None:
    job, _, channel = under_castor(tmp_path, script(*_model(), Numbered()), VirtualClock())
    job.finish()
    assert channel.said == ["finished"]


@pytest.mark.parametrize(("steps", "is_complete"), [(0, False), (3, False), (100, True)])
def test_training_is_complete_where_it_has_reached_its_total(
    tmp_path: Path, steps: int, is_complete: bool
) -> None:
    job, _, channel = under_castor(tmp_path, script(*_model(), Numbered()), VirtualClock())
    for inputs, _ in itertools.islice(job.batches(epochs=1), steps):
        job.step(job.model(inputs).mean())
    job.finish()
    assert channel.is_complete is is_complete


@pytest.mark.parametrize("end", [SystemExit(0), SystemExit(1), KeyboardInterrupt(), OSError()])
def test_a_script_that_ends_inside_its_session_reports_its_last_step(
    tmp_path: Path, end: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, parts, channel = under_castor(tmp_path, script(*_model(), Numbered()), VirtualClock())
    monkeypatch.setattr(session_module, "open_parts", lambda *arguments: parts)
    model, optimizer = _model()
    with (
        pytest.raises(type(end)),
        session(model, optimizer, Numbered(), batch_size=16) as job,
    ):
        for number, (inputs, _) in enumerate(job.batches(epochs=9)):
            job.step(job.model(inputs).mean())
            if number == 10:
                raise end
    assert channel.reports[-1]["step"] == 11
    assert channel.reports[-1]["progress_examples"] == parts.state.counters.progress_examples
    assert channel.said[-1] == "report"


def test_a_replica_that_leaves_says_so_last(tmp_path: Path, monkeypatch) -> None:
    _, parts, channel = under_castor(tmp_path, script(*_model(), Numbered()), VirtualClock())
    monkeypatch.setattr(session_module, "open_parts", lambda *arguments: parts)
    channel._directive = TrainingDirective(drain=True)
    model, optimizer = _model()
    with pytest.raises(SystemExit), session(model, optimizer, Numbered(), batch_size=16) as job:
        _train(job, epochs=99)
    assert channel.said[-1] == "left"


def test_the_end_of_the_interpreter_sends_the_last_report(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        replica = fleet.start("unclosed.py", STEPS="7")
        assert replica.wait(60) == 0, replica.log.read_text()
        wait_until(lambda: replica.reports and replica.reports[-1]["step"] == 7)
        assert replica.reports[-1]["step"] == 7
    finally:
        fleet.stop()


def test_the_steps_of_this_start_are_told(tmp_path: Path) -> None:
    for epochs, steps in ((1, 7), (3, 14)):
        job, _, channel = under_castor(tmp_path, script(*_model(), Numbered()), VirtualClock())
        _train(job, epochs)
        job.finish()
        assert channel.steps[-1] == steps


def _train(job: TrainingSession, epochs: int) -> None:
    for inputs, _ in job.batches(epochs=epochs):
        job.step(job.model(inputs).mean())


def test_workers_know_which_steps_are_split(monkeypatch) -> None:
    """A lone rank splits those in which it takes gradient squares."""
    allow(monkeypatch, BatchSpec(10, 20, 20, adaptive=True))
    monkeypatch.setattr(SamplingBudget, "steps_per_sample", lambda *arguments: 2)
    plans = []
    plan_anew = Loader._plan_anew
    monkeypatch.setattr(
        Loader, "_plan_anew", lambda self, indices: plans.append(1) or plan_anew(self, indices)
    )
    job, _ = opened(script(*_model(), Numbered(), batch_size=10, num_workers=1))
    sizes = []
    for inputs, _ in job.batches(epochs=1):
        sizes.append(len(inputs))
        job.step(job.model(inputs).mean())
    job.finish()
    assert sizes == [5, 5, 10] * 5
    assert len(plans) == 1


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_checkpoint_of_other_bounds_goes_on_within_these(
    tmp_path: Path, monkeypatch, adaptive: bool
) -> None:
    allow(monkeypatch, BatchSpec(10, 100, 100, adaptive=True))
    decide(monkeypatch, 100)
    kept = {"batch_size": 10, "checkpoint_directory": str(tmp_path)}
    job, parts = opened(script(*_model(), Numbered(), **kept))
    _train(job, epochs=3)
    job.finish()
    assert parts.state.counters.batch_total == 100
    monkeypatch.undo()
    allow(monkeypatch, BatchSpec(10, 40, 40, adaptive=adaptive))
    job, parts = opened(script(*_model(), Numbered(), **kept))
    next(job.batches(epochs=9))
    assert job.batch_size == (40 if adaptive else 10)
