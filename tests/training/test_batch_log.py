"""Logs of batch decisions: what they hold, and runs that repeat them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import TrainingDirective
from autoscaler.training import session
from autoscaler.training.state.batch_log import (
    BATCH_LOG_FILE,
    BatchDecision,
    BatchLog,
    BatchReason,
    batches_of,
)
from tests.training.alone import allow, decide, opened, script
from tests.training.fleet import Fleet, ReplicaProcess, wait_until, whole_lines
from tests.training.traces import is_training

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
SLOW_START = ThroughputParameters(0.02, 1e-5, 0.02, 1e-4, 0.01, 1e-4, 1.5)


def _decision(step: int, batch: int, ranks: int = 1, square: float = 0.0) -> BatchDecision:
    return BatchDecision(step, batch, 16, ranks, ranks, 0.1, square, 2 * square)


def test_a_log_says_what_changed_and_why() -> None:
    log = BatchLog()
    log.add(_decision(0, 16), BatchReason.KEPT)
    log.add(_decision(10, 16), BatchReason.KEPT)
    log.add(_decision(20, 64, square=1.0), BatchReason.MEASUREMENT)
    log.add(_decision(30, 32, square=1.0), BatchReason.GOODPUT)
    log.add(_decision(40, 32, ranks=2, square=1.0), BatchReason.KEPT)
    log.add(_decision(50, 32, ranks=2, square=1.5), BatchReason.KEPT)
    said = [(made.step, made.reason) for made in log.decisions]
    reasons = ["start", "measurement", "goodput", "instances", "noise scale"]
    assert said == list(zip([0, 20, 30, 40, 50], reasons, strict=True))
    log.add(_decision(50, 24, ranks=1), BatchReason.KEPT)
    assert [made.step for made in log.decisions][-2:] == [40, 50], "the step was not committed"
    assert (log.decisions[-1].batch, log.decisions[-1].reason) == (24, "bounds")


def test_a_repeated_run_ends_its_rounds_where_the_log_changes(tmp_path: Path) -> None:
    log = BatchLog()
    for step, batch in ((0, 16), (5, 32), (9, 16)):
        log.add(_decision(step, batch), BatchReason.GOODPUT)
    path = tmp_path / "log"
    path.write_text(log.text)
    batches = batches_of(path, 16)
    assert [batches.at(step).batch for step in (0, 4, 5, 8, 9, 99)] == [16, 16, 32, 32, 16, 16]
    assert [batches.steps_left(step) for step in (0, 4, 5, 8, 9)] == [5, 1, 4, 1, None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "can't be read: No such file"),
        ("", "not a complete batch log"),
        ("{}", "not a batch log"),
        ("steps", "not a batch log"),
        (json.dumps([1, 16]), "not a batch log"),
        (BatchLog([_decision(3, 16)]).text, "not a complete batch log: its steps must rise"),
        (BatchLog([_decision(0, 16)]).text, "has batch_size=16, and this run has 32"),
    ],
)
def test_a_log_that_can_not_be_repeated_is_refused(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "log"
    if text is not None:
        path.write_text(text)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.ones(64, 4))
    with pytest.raises(ValueError, match=f"batch_log='.*log' .*{words}"):
        opened(script(model, optimizer, data, batch_size=32, batch_log=str(path)))


def _trained(batch_log: str | None, directory: Path) -> tuple[list[tuple[int, float]], Path]:
    model = nn.Linear(4, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(320, 4, generator=torch.Generator().manual_seed(0)))
    settings: dict[str, Any] = {"checkpoint_directory": str(directory), "batch_log": batch_log}
    seen = []
    with session(model, optimizer, data, batch_size=16, **settings) as job:
        for (inputs,) in job.batches(epochs=3):
            step = job.step(job.model(inputs).square().mean())
            if step.is_last:
                seen.append((step.batch_size, step.learning_rate))
    return seen, max(directory.glob("step-*")) / BATCH_LOG_FILE


def test_a_run_repeats_the_log_of_another_and_has_the_same_log(tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patched:
        allow(patched, BatchSpec(16, 64, 64, adaptive=True))
        decide(patched, 48)
        first, log = _trained(None, tmp_path / "first")
    assert {batch for batch, _ in first} >= {16, 48}
    second, again = _trained(str(log), tmp_path / "second")
    assert second == first
    held = ("step", "batch", "learning_rate", "gradient_square", "gradient_variance")
    for one, other in zip(_lines(log), _lines(again), strict=True):
        assert [one[name] for name in held] == [other[name] for name in held]
        assert other["reason"] in ("start", "repeated")
    monkeypatch.setenv("CASTOR_BATCH_LOG", str(log))
    assert _trained(None, tmp_path / "third")[0] == first


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    spec = BatchSpec(initial=32, maximum=256, device_maximum=128, adaptive=True)
    fleet = Fleet(tmp_path, checkpoint_interval_seconds=0.5, batch=spec)
    yield fleet
    fleet.stop()


def _committed(*replicas: ReplicaProcess) -> dict[int, dict[str, Any]]:
    paths = [path for each in replicas for path in each.trace.parent.glob(f"{each.trace.name}*")]
    lines = [line for path in paths for line in whole_lines(path)]
    by_step: dict[int, dict[str, Any]] = {}
    for line in (line for line in lines if line["committed"]):
        known = by_step.setdefault(line["step"], {**line, "indices": []})
        known["indices"] = [*known["indices"], *line["indices"]]
    return by_step


def _adaptive_run(fleet: Fleet, directory: Path) -> tuple[dict[int, dict[str, Any]], Path]:
    """A run that a second instance joins, and whose first instance is lost."""
    settings = {"EPOCHS": "100000", "CASTOR_JOB": "job", "JOB_DIRECTORY": str(directory)}
    first = fleet.start("adaptive.py", **settings)
    first.direct(TrainingDirective(throughput=SLOW_START))
    wait_until(lambda: first.step > 40)
    second = fleet.start("adaptive.py", 2, **settings)
    second.direct(TrainingDirective(throughput=SLOW_START))
    wait_until(lambda: is_training(first, 2), description="two instances")
    grown = wait_until(
        lambda: next((each for each in first.reports if each["batch"]["total"] > 32), None),
        description="a larger batch",
    )
    wait_until(lambda: first.step > grown["step"] + 50)
    at = second.step
    first.kill()
    wait_until(lambda: second.step > at + 60, description="going on alone")
    second.direct(TrainingDirective(drain=True))
    assert second.wait(60) == 0
    log = directory / BATCH_LOG_FILE
    saved = max(fleet.checkpoints.glob("step-*")) / BATCH_LOG_FILE
    assert log.read_text() == saved.read_text()
    return _committed(first, second), log


@pytest.mark.parametrize("ranks", [1, 4])
def test_an_adaptive_run_is_repeated_at_other_sizes(
    fleet: Fleet, tmp_path: Path, ranks: int
) -> None:
    first, log = _adaptive_run(fleet, tmp_path)
    reasons = {line["reason"] for line in _lines(log)}
    assert {"start", "instances"} < reasons and reasons & {"goodput", "measurement"}
    assert len({line["batch"] for line in first.values()}) > 1
    last = max(first)
    fixed = Fleet(tmp_path / "repeated", batch=BatchSpec(32, None, 128))
    try:
        repeating = fixed.start(
            "adaptive.py", ranks, EPOCHS="100000", CASTOR_BATCH_LOG=str(log), STEP_SECONDS="0"
        )
        wait_until(lambda: repeating.step > last, seconds=90, description="the end of the log")
        repeating.kill()
    finally:
        fixed.stop()
    second = _committed(repeating)
    for step, line in first.items():
        same = second[step]
        assert same["batch"] == line["batch"], step
        assert set(line["indices"]) <= set(same["indices"]), step
        for name in ("weights", "rate", "progress"):
            assert same[name] == pytest.approx(line[name], abs=1e-6, rel=1e-6), (step, name)
