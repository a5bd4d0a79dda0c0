"""Real replicas without torchft; `test_elastic` has what both engines promise."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.training import TrainingDirective
from autoscaler.training.opening import _engine
from tests.training.fleet import Fleet, ReplicaProcess, Roster, wait_until
from tests.training.traces import (
    EXAMPLES,
    assert_replicas_agree,
    is_training,
    pauses,
    taken,
)

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

ENDLESS = {"EPOCHS": "100000", "STEP_SECONDS": "0.01"}


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    return Roster(tmp_path / "lighthouses")


@pytest.fixture
def fleet(tmp_path: Path, roster: Roster) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, roster)
    yield fleet
    roster.continue_supervisor()
    fleet.stop()


def test_instances_grow_and_shrink_and_no_example_is_lost_or_doubled(
    fleet: Fleet, roster: Roster
) -> None:
    first = fleet.start(**ENDLESS)
    wait_until(lambda: first.step > 5, description="the first")
    roster.kill_server()
    large = fleet.start(**ENDLESS, SEED="1", ranks=2)
    wait_until(lambda: is_training(first, 2), description="two")
    assert first.reports[-1]["devices"] == 3
    large.direct(TrainingDirective(drain=True))
    assert large.wait(60) == 0
    assert large.of_kind("left")
    wait_until(lambda: is_training(first, 1), description="one again")
    first.direct(TrainingDirective(drain=True))
    assert first.wait(60) == 0
    assert_replicas_agree(fleet)
    steps = [line["step"] for line in first.steps()]
    assert steps == list(range(len(steps))), "the joiner changed nothing for the first"
    inner = large.steps(1)
    assert [(line["step"], line["weight"]) for line in inner] == [
        (line["step"], line["weight"]) for line in large.steps()
    ]
    by_pass = taken(fleet)
    for line in inner:
        by_pass[line["step"] * 32 // EXAMPLES].update(line["indices"])
    whole = len(steps) * 32 // EXAMPLES
    assert [by_pass[index] for index in range(whole)] == [Counter(range(EXAMPLES))] * whole
    assert [pause["kind"] for pause in pauses(first)] == ["join", "drain"]
    assert {report["engine"] for report in first.reports} == {"roster"}


def test_a_joiner_gets_the_state_from_the_members_where_no_disk_is_shared(
    fleet: Fleet, tmp_path: Path
) -> None:
    both: list[ReplicaProcess] = []
    for number in range(2):
        disk = tmp_path / f"disk-{number}"
        fleet.setup = replace(fleet.setup, checkpoint_directory=str(disk))
        both.append(fleet.start(**ENDLESS, SEED=str(number)))
        wait_until(lambda: both[-1].step > 5, description=f"steps of {number}")
    first, second = both
    wait_until(lambda: is_training(first, 2), description="two")
    assert_replicas_agree(fleet)
    assert second.steps()[0]["step"] > 5, "it went on from the first one's state"
    assert not list(tmp_path.glob("disk-*/step-*")), "no checkpoint was needed"


def test_the_lighthouse_of_another_version_is_refused(fleet: Fleet) -> None:
    setup = replace(fleet.setup, lighthouse="restart://127.0.0.1:9")
    with pytest.raises(ValueError, match="install the version of castor that the controller has"):
        _engine(setup)


def test_it_is_chosen_where_torchft_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torchft'] = None\n")
    monkeypatch.setitem(sys.modules, "torchft", None)
    fleet = Fleet(tmp_path, Roster(tmp_path / "lighthouses", engine=None))
    try:
        first = fleet.start(**ENDLESS, path=str(tmp_path))
        fleet.setup = replace(fleet.setup, lighthouse="http://127.0.0.1:9")
        unfit = fleet.start(**ENDLESS, path=str(tmp_path))
        report = wait_until(lambda: first.reports and first.reports[-1], description="a report")
        assert report["engine"] == "roster"
        assert unfit.wait(60) == 1
        assert "or start castor serve with --engine roster" in unfit.log.read_text()
    finally:
        fleet.stop()
