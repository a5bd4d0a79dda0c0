"""Replicas stay equal to the last bit, whatever each of them has used or counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from autoscaler.training.state.buffers import SharedBuffers
from tests.training.fleet import Fleet, ReplicaProcess, wait_until, whole_lines
from tests.training.traces import is_training

SCRIPT = "branches.py"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, checkpoint_interval_seconds=1.0)
    yield fleet
    fleet.stop()


def hashes(replicas: list[ReplicaProcess]) -> dict[int, set[str]]:
    """The hashes of the parameters after each step that was committed, by step."""
    by_step: dict[int, set[str]] = defaultdict(set)
    for replica in replicas:
        for path in replica.trace.parent.glob(f"{replica.trace.name}*"):
            for line in whole_lines(path):
                if line["committed"]:
                    by_step[line["step"]].add(line["parameters"])
    return by_step


def test_parameters_that_only_some_replicas_use_are_moved_alike_on_all(fleet: Fleet) -> None:
    first = fleet.start(SCRIPT, EPOCHS="100000")
    wait_until(lambda: first.step > 5)
    second = fleet.start(SCRIPT, EPOCHS="100000", ranks=2)
    wait_until(lambda: is_training(first, 2), description="two replicas with three ranks")
    at = second.step
    wait_until(lambda: min(first.step, second.step) > at + 200, description="steps of both")
    for replica in (first, second):
        replica.kill()
    of_steps = hashes([first, second])
    assert sum(step > at for step in of_steps) > 150
    assert all(len(of_step) == 1 for of_step in of_steps.values()), "replicas have drifted"


def test_no_rank_ever_passes_one_example_through_batch_norm(fleet: Fleet) -> None:
    """Steps of 8 over five ranks would be shares of 2 and 1, and 65 examples leave one over."""
    settings = {"EXAMPLES": "65", "BATCH": "8", "EPOCHS": "100000"}
    first = fleet.start(SCRIPT, **settings)
    second = fleet.start(SCRIPT, ranks=4, **settings)
    wait_until(lambda: is_training(first, 2) or is_training(second, 2), description="five ranks")
    at = first.step
    wait_until(lambda: min(first.step, second.step) > at + 20, description="passes")
    for replica in fleet.replicas:
        replica.kill()
    assert all(line["examples"] > 1 for line in first.steps() + second.steps())
    assert len({*hashes([first, second])}) > 20


def test_batch_norm_statistics_are_the_deciders_on_all_replicas(fleet: Fleet) -> None:
    """Copy them at a join and at each checkpoint: at step N after the checkpoint of step N."""
    first = fleet.start(SCRIPT, EPOCHS="100000")
    wait_until(lambda: first.step > 5)
    second = fleet.start(SCRIPT, EPOCHS="100000")
    wait_until(lambda: second.step > 0)
    third = fleet.start(SCRIPT, EPOCHS="100000")
    wait_until(lambda: third.step > 0)
    joined_at = third.steps()[0]["step"]
    newest = wait_until(
        lambda: max((step for step in _saved_steps(fleet) if step > joined_at), default=0),
        description="a checkpoint of all three",
    )
    wait_until(lambda: min(replica.step for replica in fleet.replicas) > newest + 20)
    for replica in fleet.replicas:
        replica.kill()
    by_step: dict[int, list[str]] = defaultdict(list)
    for replica in fleet.replicas:
        for line in replica.steps():
            by_step[line["step"]].append(line["buffers_before"])
    for step in (joined_at, newest):
        assert len(by_step[step]) == 3
        assert len(set(by_step[step])) == 1, f"step {step}"
    assert any(len(set(buffers)) == 3 for buffers in by_step.values()), "each counts its own"


def _saved_steps(fleet: Fleet) -> set[int]:
    return {int(path.name.split("-")[1]) for path in fleet.checkpoints.glob("step-*")}


def test_shared_buffers_are_exactly_those_of_the_source() -> None:
    models = [nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4)) for _ in range(3)]
    for index, model in enumerate(models):
        for _ in range(index + 1):
            model(torch.randn(8, 4) * (index + 1))
    expected = {name: value.clone() for name, value in models[1].named_buffers()}
    parts: list[torch.Tensor] = []
    for index, model in enumerate(models):
        SharedBuffers(model).share(index == 1, lambda part: parts.append(part.clone()) or False)
    total = torch.stack(parts).sum(dim=0)
    for index, model in enumerate(models):
        SharedBuffers(model).share(index == 1, lambda part: part.copy_(total) is not None)
        for name, value in model.named_buffers():
            assert torch.equal(value, expected[name]), name


def test_buffers_stay_where_the_sum_has_failed() -> None:
    model = nn.BatchNorm1d(4)
    model(torch.randn(8, 4))
    before = model.running_mean.clone()
    SharedBuffers(model).share(False, lambda part: False)
    assert torch.equal(model.running_mean, before)
