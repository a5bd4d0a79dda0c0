"""Real replicas without torchft: they go on from one checkpoint at each change of membership."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CheckpointError
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.training import TrainingDirective
from autoscaler.training.collectives.gradient_groups import gradients_of
from autoscaler.training.members.peers import QuorumSettings
from autoscaler.training.members.restart import RestartQuorum
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.training_state import Counters, TrainingState
from tests.training.fleet import Fleet, ReplicaProcess, Roster, wait_until
from tests.training.traces import (
    EXAMPLES,
    assert_replicas_agree,
    is_training,
    listening_on,
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


def _saved(*replicas: ReplicaProcess) -> int:
    reports = [report for replica in replicas for report in replica.reports]
    return max((report["checkpoint"]["step"] or 0 for report in reports), default=0)


def _assert_nothing_is_taken_twice(fleet: Fleet) -> None:
    for pass_index, counts in taken(fleet).items():
        assert max(counts.values()) == 1, f"pass {pass_index}"


def test_instances_grow_and_shrink_and_no_example_is_lost_or_doubled(
    fleet: Fleet, roster: Roster
) -> None:
    first = fleet.start(**ENDLESS)
    wait_until(lambda: first.step > 5, what="the first")
    roster.kill_server()
    large = fleet.start(**ENDLESS, SEED="1", ranks=2)
    wait_until(lambda: is_training(first, 2), what="two")
    assert first.reports[-1]["devices"] == 3
    large.direct(TrainingDirective(drain=True))
    assert large.wait(30) == 0
    assert large.of_kind("left")
    left = large.steps()[-1]["step"] + 1
    wait_until(lambda: _saved(first) == left, what="a checkpoint of the change")
    first.direct(TrainingDirective(drain=True))
    assert first.process.wait(30) == 0
    assert_replicas_agree(fleet)
    steps = [line["step"] for line in first.steps()]
    assert steps == list(range(len(steps))), "the joiner changed nothing for the first"
    inner = [json.loads(line) for line in Path(f"{large.trace}1").read_text().splitlines()]
    assert [(line["step"], line["weight"]) for line in inner] == [
        (line["step"], line["weight"]) for line in large.steps()
    ]
    by_pass = taken(fleet)
    for line in inner:
        by_pass[line["step"] * 32 // EXAMPLES].update(line["indices"])
    whole = len(steps) * 32 // EXAMPLES
    assert [by_pass[index] for index in range(whole)] == [Counter(range(EXAMPLES))] * whole
    assert [pause["kind"] for pause in pauses(first)] == ["join", "drain"]
    assert {report["engine"] for report in first.reports} == {"restart"}


def test_without_a_shared_disk_a_joiner_gets_the_state_through_storage(
    fleet: Fleet, tmp_path: Path
) -> None:
    place = f"file://{tmp_path}/bucket/jobs/job"
    grant_file = tmp_path / "grant.json"
    grant_file.write_text(json.dumps(asdict(StorageGrant(place))))
    both: list[ReplicaProcess] = []
    for number in range(2):
        fleet.setup = replace(
            fleet.setup,
            checkpoint_directory=str(tmp_path / f"disk-{number}"),
            depot=f"{place}/checkpoints",
            grant_file=str(grant_file),
        )
        both.append(fleet.start(**ENDLESS, SEED=str(number)))
        wait_until(lambda: both[-1].step > 5, what=f"steps of {number}")
    first, second = both
    wait_until(lambda: is_training(first, 2), what="two")
    for replica in both:
        replica.direct(TrainingDirective(drain=True))
    assert [replica.wait(30) for replica in both] == [0, 0]
    assert_replicas_agree(fleet)
    assert second.steps()[0]["step"] > 5, "it went on from the first one's checkpoint"
    checkpoints = tmp_path / "bucket/jobs/job/checkpoints"
    last = max(path.parent.name for path in checkpoints.glob("*/manifest.json"))
    assert int(last.removeprefix("step-")) == first.steps()[-1]["step"] + 1


def test_it_outlives_its_server_one_peer_and_all_of_them(fleet: Fleet, roster: Roster) -> None:
    first, second = fleet.start(**ENDLESS), fleet.start(**ENDLESS, SEED="1")
    wait_until(lambda: any(is_training(replica, 2) for replica in (first, second)), what="two")
    assert listening_on(first) == {"127.0.0.1"}
    roster.stop_supervisor()
    roster.kill_server()
    at = first.step
    wait_until(lambda: min(first.step, second.step) > at + 100, what="steps without a server")
    roster.continue_supervisor()
    second.kill()
    wait_until(lambda: any(pause["kind"] == "loss" for pause in pauses(first)), what="the loss")
    third = fleet.start(**ENDLESS, SEED="2")
    wait_until(lambda: third.step > 0, what="the successor")
    at = third.step
    wait_until(lambda: min(first.step, third.step) > at + 20)
    first.kill()
    third.kill()
    assert_replicas_agree(fleet)
    _assert_nothing_is_taken_twice(fleet)
    committed = [line["step"] for line in first.steps() if line["committed"]]
    assert committed == list(range(committed[0], committed[-1] + 1)), "nothing is done again"
    lost = [line for line in first.steps() if not line["committed"]]
    assert len(lost) <= 1, "more than the step in flight was lost"
    saved = max(int(path.name.removeprefix("step-")) for path in fleet.checkpoints.glob("step-*"))
    assert saved >= third.steps()[0]["step"]
    again = fleet.start(**ENDLESS, SEED="3")
    wait_until(lambda: again.steps(), what="the next start")
    assert again.steps()[0]["step"] == saved


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
        report = wait_until(lambda: first.reports and first.reports[-1], what="a report")
        assert report["engine"] == "restart"
        assert unfit.process.wait(30) == 1
        assert "or start castor serve with --engine restart" in unfit.log.read_text()
    finally:
        fleet.stop()


def test_without_a_checkpoint_nobody_can_join_and_the_others_go_on(
    roster: Roster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(variable, "lo")
    (tmp_path / "full").touch()

    def member(name: str) -> RestartQuorum:
        gradients = gradients_of(torch.device("cpu"), "nccl", timedelta(seconds=5))
        settings = QuorumSettings(roster.address, name, "127.0.0.1", "secret", 1.5, 5.0, gradients)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.Adam(model.parameters())
        state = TrainingState(model, optimizer, None, Counters())
        checkpoints = Checkpoints(tmp_path / "full" / "disk", 1, SystemClock())
        return RestartQuorum(settings, SystemClock(), state, checkpoints)

    def try_to_join() -> None:
        second = member("second")
        try:
            second.form(0)
        finally:
            second.leave()

    first = member("first")
    assert first.form(0).replicas == 1
    with ThreadPoolExecutor(1) as threads:
        joins = threads.submit(try_to_join)
        while not joins.done():
            assert first.form(0).replicas == 1
    with pytest.raises(CheckpointError, match="all instances of a job must share"):
        joins.result()
    first.leave()
    roster.end()
