"""Early stops that all ranks agree on, and evaluations that all ranks make together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autoscaler.domain.job import BatchSpec
from autoscaler.training import session
from tests.training.alone import allow
from tests.training.fleet import Fleet, ReplicaProcess, Roster, wait_until, whole_lines
from tests.training.traces import is_training

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
SCRIPT = "stops.py"


@pytest.fixture(params=["quorum", "roster"])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    roster = Roster(tmp_path / "lighthouses") if request.param == "roster" else None
    fleet = Fleet(tmp_path, roster)
    yield fleet
    fleet.stop()


def _notes(replica: ReplicaProcess) -> list[list[dict[str, Any]]]:
    """Return the notes of each rank."""
    paths = replica.trace.parent.glob(f"{replica.trace.name}*")
    return [whole_lines(path) for path in sorted(paths)]


def _joined(fleet: Fleet, ranks: int = 1, **settings: str) -> tuple[ReplicaProcess, ...]:
    first = fleet.start(SCRIPT, ranks, STOPS="nobody", **settings)
    wait_until(lambda: first.step > 0)
    second = fleet.start(SCRIPT, ranks, **settings)
    wait_until(lambda: is_training(first, 2), description="two replicas")
    return first, second


@pytest.mark.parametrize("stops", ["0", "1"])
@pytest.mark.parametrize("by_epochs", ["0", "1"])
def test_any_rank_stops_all_at_one_step(fleet: Fleet, stops: str, by_epochs: str) -> None:
    """The one that asks is of the second instance, which does not decide."""
    first = fleet.start(SCRIPT, 2, STOPS="nobody")
    wait_until(lambda: first.step > 0)
    settings = {"STOPS": stops, "STOP_AT": str(first.step + 150), "BY_EPOCHS": by_epochs}
    second = fleet.start(SCRIPT, 2, **settings)
    assert (first.wait(90), second.wait(90)) == (0, 0)
    notes = [*_notes(first), *_notes(second)]
    (ended,) = {lines[-1]["ended"] for lines in notes}
    assert ended >= int(settings["STOP_AT"])
    asked = [line["asked"] for lines in notes for line in lines if "asked" in line]
    assert by_epochs == "1" or asked[0] == ended - 1, "it has ended with the next step"
    (finished,) = first.of_kind("finished")
    assert not finished["is_complete"]
    reason = "no progress in this époque" if by_epochs == "1" else "no progress since step"
    assert finished["stop_reason"].startswith(reason)
    assert second.of_kind("done") and not second.of_kind("finished")


def test_a_long_evaluation_on_the_deciding_rank_evicts_nobody(tmp_path: Path) -> None:
    """Evaluate for longer than the timeout of a sum."""
    fleet = Fleet(tmp_path, collective_timeout_seconds=3.0)
    try:
        first, second = _joined(fleet, EVERY="100", EVALUATION_SECONDS="6")
        begun = first.step // 100 * 100 + 100
        wait_until(lambda: min(first.step, second.step) > begun + 50, description="an evaluation")
        for replica in (first, second):
            replica.kill()
    finally:
        fleet.stop()
    for replica in (first, second):
        (lines,) = _notes(replica)
        after = [line for line in lines if begun <= line.get("step", 0) <= begun + 50]
        assert all(line["committed"] and line["members"] == 2 for line in after)
        assert {"evaluated": begun, "mean": 2.0} in lines
    pauses = [pause for report in first.reports for pause in report["pauses"]]
    assert {pause["kind"] for pause in pauses} == {"join"}
    observed = [seen for report in first.reports for seen in report["observations"]]
    assert max(seen["step_seconds"] for seen in observed) < 0.5, "evaluations are no steps"


def test_ranks_evaluate_at_the_same_steps(fleet: Fleet) -> None:
    first, second = _joined(fleet, 2, EVERY="25")
    begun = first.step
    wait_until(lambda: min(first.step, second.step) > begun + 80)
    for replica in (first, second):
        replica.kill()
    for lines in [*_notes(first), *_notes(second)]:
        steps = [line["evaluated"] for line in lines if "evaluated" in line]
        assert set(range(begun // 25 * 25 + 50, begun + 75, 25)) <= set(steps)
        assert all(step % 25 == 0 for step in steps) and len(steps) == len(set(steps))


def _data() -> TensorDataset:
    return TensorDataset(torch.randn(80, 4))


def _made() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


@pytest.mark.parametrize("device_most", [16, 8])
def test_every_is_true_once_at_each_multiple(monkeypatch, device_most: int) -> None:
    allow(monkeypatch, BatchSpec(16, 16, device_most, adaptive=False))
    model, optimizer = _made()
    by_steps, by_examples = [], []
    with session(model, optimizer, _data(), batch_size=16) as job:
        for (inputs,) in job.batches(epochs=3):
            assert not job.every(steps=1), "a step has begun"
            step = job.step(job.model(inputs).square().mean())
            if job.every(steps=4):
                by_steps.append(step.number)
            if job.every(examples=40):
                by_examples.append(job.progress_examples)
    assert by_steps == [4, 8, 12]
    assert by_examples == pytest.approx([48, 80, 128, 160, 208, 240])


@pytest.mark.parametrize("period", [{}, {"steps": 0}, {"steps": 2, "examples": 3}])
def test_every_takes_one_period(period: dict[str, Any]) -> None:
    model, optimizer = _made()
    with (
        session(model, optimizer, _data(), batch_size=16) as job,
        pytest.raises(ValueError, match="either steps"),
    ):
        job.every(**period)


def test_a_lone_rank_stops_at_once_and_keeps_its_state(tmp_path: Path) -> None:
    begun = []
    for _ in range(2):
        model, optimizer = _made()
        with session(
            model, optimizer, _data(), batch_size=16, checkpoint_directory=str(tmp_path)
        ) as job:
            begun.append(job.progress_examples)
            steps = 0
            for (inputs,) in job.batches(epochs=50):
                job.step(job.model(inputs).square().mean())
                steps += 1
                if steps == 3:
                    job.stop("that is enough")
        assert steps == 3
        assert math.isclose(job.progress_examples, begun[-1] + 48)
    assert begun == [0, 48]
