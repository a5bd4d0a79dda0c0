"""Real replicas that join, leave, are killed and come back. Each test is one short story."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import Engine, TrainingDirective
from tests.training.fleet import Fleet, Lighthouse, roster_of, wait_until
from tests.training.traces import (
    EXAMPLES,
    assert_replicas_agree,
    is_training,
    listening_on,
    pauses,
    taken,
)


@pytest.fixture(params=list(Engine))
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine keeps what these stories promise."""
    return cast(Engine, request.param)


@pytest.fixture
def fleet(tmp_path: Path, engine: Engine) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, roster_of(engine, tmp_path), checkpoint_interval_seconds=0.5)
    yield fleet
    fleet.stop()


# Long enough for a third instance to come, also where imports are slow.
LONG = {"EPOCHS": "40", "STEP_SECONDS": "0.05"}


@pytest.mark.slow
def test_replicas_of_different_sizes_join_and_drain_without_stopping_the_others(
    fleet: Fleet,
) -> None:
    first = fleet.start(**LONG)
    wait_until(lambda: first.step > 5, description="the first replica")
    second = fleet.start(**LONG, SEED="1")
    large = fleet.start(**LONG, SEED="2", ranks=2)
    wait_until(lambda: is_training(first, 3), description="three replicas")
    assert wait_until(lambda: first.reports[-1]["devices"] == 4, description="four devices")
    wait_until(lambda: second.step > 0)
    second.direct(TrainingDirective(drain=True))
    assert second.wait(60) == 0
    assert second.of_kind("left")
    assert not second.of_kind("finished")
    wait_until(lambda: is_training(first, 2), description="two replicas")
    assert (first.wait(60), large.wait(60)) == (0, 0)
    assert first.of_kind("finished"), "it has been a member longest, and so decides"
    assert large.of_kind("done")
    assert not large.of_kind("finished"), "it does not know whether the last state was saved"
    assert_replicas_agree(fleet)
    by_pass = taken(fleet)
    whole_passes = [Counter(range(EXAMPLES))] * 40
    second_rank = Path(f"{large.trace}1").read_text()
    assert second_rank
    for pass_index, expected in enumerate(whole_passes):
        extra = by_pass[pass_index] - expected
        assert not extra, f"pass {pass_index}: examples learnt from twice: {extra}"
    kinds = [pause["kind"] for pause in pauses(first)]
    assert kinds.count("join") in (1, 2)
    assert "drain" in kinds
    # Four processes share what cores there are. A restart would take as long as the first start.
    assert all(pause["seconds"] < 3.0 for pause in pauses(first)), pauses(first)


def test_a_killed_peer_costs_one_step_and_its_successor_heals(fleet: Fleet) -> None:
    first = fleet.start(EPOCHS="100000")
    second = fleet.start(EPOCHS="100000", SEED="1")
    third = fleet.start(EPOCHS="100000", SEED="2")
    wait_until(lambda: any(is_training(replica, 3) for replica in fleet.replicas))
    second.kill()
    survivors = (first, third)
    wait_until(
        lambda: any(pause["kind"] == "loss" for pause in pauses(*survivors)),
        description="the loss",
    )
    fourth = fleet.start(EPOCHS="100000", SEED="3")
    wait_until(lambda: fourth.step > 0, description="the successor")
    at = fourth.step
    wait_until(lambda: min(replica.step for replica in (first, third, fourth)) > at + 20)
    for replica in fleet.replicas:
        if replica is not second:
            replica.kill()
    assert_replicas_agree(fleet)
    for pass_index, counts in taken(fleet).items():
        assert max(counts.values()) == 1, pass_index
    lost = [line for replica in survivors for line in replica.steps() if not line["committed"]]
    assert len(lost) <= 2 * len(survivors), "more than the step in flight was lost"


def test_a_successor_that_comes_at_once_does_not_hold_up_the_survivors(fleet: Fleet) -> None:
    """The lighthouse still hears the lost one when the successor gets its first quorum."""
    survivor = fleet.start(EPOCHS="100000")
    peers = [fleet.start(EPOCHS="100000") for _ in range(2)]
    for _ in range(3):
        wait_until(
            lambda: all(len(peer.steps()) > 20 for peer in peers), description="three replicas"
        )
        peers.pop(0).kill()
        peers.append(fleet.start(EPOCHS="100000"))
    wait_until(lambda: len(peers[-1].steps()) > 20, description="the last successor")
    times = [line["at"] for line in survivor.steps() if line["committed"]]
    longest = max(later - earlier for earlier, later in itertools.pairwise(times))
    assert longest < 15, f"training stood still for {longest:.1f} s"


def test_members_train_on_while_a_joiner_rehearses(fleet: Fleet) -> None:
    first = fleet.start(EPOCHS="100000")
    wait_until(lambda: first.step > 5, description="the first replica")
    joiner = fleet.start(EPOCHS="100000", SEED="1", REHEARSAL="3.0", ranks=2)
    wait_until(lambda: is_training(first, 2), description="two replicas")
    wait_until(lambda: len(joiner.steps()) > 20, description="steps of the joiner")
    for replica in fleet.replicas:
        replica.kill()
    began, ended = json.loads(Path(f"{joiner.trace}.rehearsal").read_text())
    meanwhile = [line for line in first.steps() if began < line["at"] < ended]
    assert len(meanwhile) > 5, "the members have waited for the rehearsal"
    assert_replicas_agree(fleet)
    for pass_index, counts in taken(fleet).items():
        assert max(counts.values()) == 1, pass_index


@pytest.mark.parametrize(
    "loss", [Lighthouse.kill, pytest.param(Lighthouse.lose, marks=pytest.mark.slow)]
)
def test_training_goes_on_without_the_lighthouse_and_grows_when_it_is_back(
    fleet: Fleet, loss: Callable[[Lighthouse], None]
) -> None:
    first = fleet.start(EPOCHS="100000")
    second = fleet.start(EPOCHS="100000")
    wait_until(lambda: any(is_training(replica, 2) for replica in fleet.replicas))
    loss(fleet.lighthouse)
    killed_at = first.step
    wait_until(lambda: first.step > killed_at + 100, description="steps without a lighthouse")
    fleet.lighthouse.start()
    third = fleet.start(EPOCHS="100000")
    wait_until(lambda: third.step > 0, description="a joiner under the new lighthouse")
    wait_until(
        lambda: any(is_training(replica, 3) for replica in (first, second)), description="three"
    )
    times = [line["at"] for line in first.steps()]
    longest = max(later - earlier for earlier, later in itertools.pairwise(times))
    assert longest < 15, f"training stood still for {longest:.1f} s"
    for replica in fleet.replicas:
        replica.kill()
    assert_replicas_agree(fleet)


def test_when_all_are_lost_the_next_start_goes_on_from_the_last_checkpoint(fleet: Fleet) -> None:
    first = fleet.start(EPOCHS="1000")
    second = fleet.start(EPOCHS="1000")

    def saved() -> int:
        reports = first.reports + second.reports
        return max((report["checkpoint"]["step"] or 0 for report in reports), default=0)

    wait_until(lambda: saved() > 100, description="a checkpoint")
    step = saved()
    first.kill()
    second.kill()
    time.sleep(1.6)  # the lighthouse has missed them: an instance takes longer to come
    next_start = fleet.start(EPOCHS="1000")
    wait_until(lambda: next_start.steps(), description="the restart")
    assert next_start.steps()[0]["step"] >= step

    def kept() -> int:
        return sum(path.name[0] != "." for path in fleet.checkpoints.iterdir())

    # One more for a moment: the oldest goes when the newest is whole.
    wait_until(lambda: kept() <= 2, description="the oldest checkpoint's end")


def test_the_last_to_leave_saves_the_state_and_nothing_is_lost(
    tmp_path: Path, engine: Engine
) -> None:
    fleet = Fleet(tmp_path, roster_of(engine, tmp_path))
    try:
        only = fleet.start(EPOCHS="1000")
        wait_until(lambda: only.step > 20)
        only.direct(TrainingDirective(drain=True))
        only.wait(60)
        last_step = only.steps()[-1]["step"]
        again = fleet.start(EPOCHS="1000", SEED="5")
        wait_until(lambda: again.steps())
        assert again.steps()[0]["step"] == last_step + 1
        assert again.steps()[0]["weight"] == pytest.approx(only.steps()[-1]["weight"], abs=0.1)
    finally:
        fleet.stop()


def test_batch_follows_the_model_within_its_bounds_and_all_agree(tmp_path: Path) -> None:
    fleet = Fleet(
        tmp_path, batch=BatchSpec(initial=32, maximum=256, device_maximum=64, adaptive=True)
    )
    slow_start = ThroughputParameters(0.02, 1e-5, 0.02, 1e-4, 0.01, 1e-4, 1.5)
    try:
        first = fleet.start(EPOCHS="100000", STEP_SECONDS="0.01", OPTIMIZER="Adam", LR="0.0001")
        first.direct(TrainingDirective(throughput=slow_start))
        wait_until(
            lambda: first.reports and first.reports[-1]["noise"], description="a noise scale"
        )
        second = fleet.start(EPOCHS="100000", STEP_SECONDS="0.01", OPTIMIZER="Adam", LR="0.0001")
        second.direct(TrainingDirective(throughput=slow_start))
        grown = wait_until(
            lambda: next((r for r in first.reports if r["batch"]["total"] > 32), None),
            description="a larger batch",
        )
        assert grown["batch"]["device"] <= 64
        assert grown["learning_rate"] == pytest.approx(
            0.0001 * (grown["batch"]["total"] / 32) ** 0.5
        )
        wait_until(lambda: second.step > 0)
        at = second.step
        wait_until(lambda: second.step > at + 20)
        for replica in fleet.replicas:
            replica.kill()
        assert_replicas_agree(fleet)
        assert all(line["batch"] <= 256 for replica in fleet.replicas for line in replica.steps())
        assert first.reports[-1]["progress_examples"] < 32 * 256 * first.reports[-1]["step"]
    finally:
        fleet.stop()


def test_ports_are_open_on_the_bind_address_only(fleet: Fleet) -> None:
    replica = fleet.start(EPOCHS="100000")
    wait_until(lambda: replica.step > 0)
    assert listening_on(replica) == {"127.0.0.1"}


@pytest.mark.quorum
def test_a_joiner_is_let_in_beside_a_member_that_hangs_and_is_heard(tmp_path: Path) -> None:
    """The lighthouse hears the one that hangs, from a thread of torchft's."""
    fleet = Fleet(tmp_path, collective_timeout_seconds=3.0)
    try:
        first = fleet.start(EPOCHS="100000")
        wait_until(lambda: first.step > 5, description="the first replica")
        hanging = fleet.start(EPOCHS="100000", HANG="20 600")
        wait_until(lambda: len(hanging.steps()) == 20, description="the hang")
        joiner = fleet.start(EPOCHS="100000", SEED="1")
        wait_until(lambda: len(joiner.steps()) > 20, description="steps of the joiner")
        assert len(hanging.steps()) == 20, "it hangs no more"
    finally:
        fleet.stop()


@pytest.mark.parametrize("place", [0, 1])
def test_a_frozen_peer_is_left_behind(tmp_path: Path, engine: Engine, place: int) -> None:
    """SIGSTOP is what a lost network looks like: the connection stays, nothing comes.

    The lighthouse misses its heartbeats long before a sum reaches its limit.
    """
    fleet = Fleet(tmp_path, roster_of(engine, tmp_path), collective_timeout_seconds=120.0)
    try:
        replicas = [fleet.start(EPOCHS="100000") for _ in range(3)]
        wait_until(lambda: any(is_training(replica, 3) for replica in replicas))
        frozen = replicas.pop(place)
        os.killpg(frozen.process.pid, signal.SIGSTOP)
        at = max(replica.step for replica in replicas)
        wait_until(
            lambda: all(replica.step > at + 100 for replica in replicas),
            description="going on without the frozen peer",
        )
    finally:
        fleet.stop()


def test_joiners_that_outnumber_a_slow_member_do_not_train_without_it(
    tmp_path: Path, engine: Engine
) -> None:
    """The member asks for a quorum after its step only, which lasts longer than joiners wait."""
    fleet = Fleet(tmp_path, roster_of(engine, tmp_path))
    try:
        first = fleet.start(EPOCHS="100000", STEP_SECONDS="3.0")
        wait_until(lambda: len(first.steps()) > 1, description="the first replica")
        joiners = [
            fleet.start(EPOCHS="100000", STEP_SECONDS="3.0", SEED=str(seed)) for seed in (1, 2)
        ]
        wait_until(
            lambda: all(len(joiner.steps()) > 1 for joiner in joiners), description="joiners"
        )
        for replica in fleet.replicas:
            replica.kill()
        assert_replicas_agree(fleet)
        for pass_index, counts in taken(fleet).items():
            assert max(counts.values()) == 1, pass_index
    finally:
        fleet.stop()
