"""Instances with equally many ranks sum gradients rank by rank, through losses and joins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.domain.training import Engine
from tests.training.fleet import Fleet, ReplicaProcess, Roster, wait_until
from tests.training.test_equal_replicas import hashes
from tests.training.traces import go_on, is_training

SCRIPT = "branches.py"


@pytest.fixture(params=list(Engine))
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    roster = Roster(tmp_path / "lighthouses") if request.param is Engine.ROSTER else None
    fleet = Fleet(tmp_path, roster)
    yield fleet
    fleet.stop()


def _uses_rails(replica: ReplicaProcess) -> bool:
    return bool(replica.steps()[-1]["by_rails"])


def test_rails_form_anew_as_instances_come_and_go(fleet: Fleet) -> None:
    first, second = (fleet.start(SCRIPT, ranks=2, EPOCHS="100000") for _ in range(2))
    wait_until(
        lambda: is_training(first, 2) or is_training(second, 2), description="two instances"
    )
    go_on([first, second])
    assert _uses_rails(first) and _uses_rails(second)
    second.kill()
    wait_until(lambda: is_training(first, 1), description="going on alone")
    go_on([first], steps=10)
    assert not _uses_rails(first)
    third = fleet.start(SCRIPT, ranks=2, EPOCHS="100000")
    wait_until(lambda: is_training(first, 2), description="a new instance")
    go_on([first, third])
    assert _uses_rails(first) and _uses_rails(third)
    fourth = fleet.start(SCRIPT, ranks=1, EPOCHS="100000")
    wait_until(lambda: is_training(first, 3), description="an instance of one rank")
    go_on([first, third, fourth])
    assert not any(_uses_rails(replica) for replica in (first, third, fourth))
    for replica in fleet.replicas:
        replica.kill()
    of_steps = hashes(fleet.replicas)
    assert all(len(of_step) == 1 for of_step in of_steps.values()), "replicas have drifted"
    for replica in (first, third, fourth):
        log = "".join(path.read_text() for path in replica.logs if path.exists())
        assert "Traceback" not in log
