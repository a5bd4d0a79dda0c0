"""Admission of a job's instances that can't all reach each other."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.controller.offers.networks import waits_for_network
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import (
    Desired,
    HeldInstance,
    InstancePhase,
)


def held(
    name: str,
    network: str,
    phase: InstancePhase,
    joined_seconds: float | None,
    training_seconds: float | None = None,
    requested_seconds: float = 0.0,
    **facts: str,
) -> HeldInstance:
    return HeldInstance(
        id=name,
        job="job",
        slot=0,
        generation=1,
        offer=network,
        devices_used=1,
        usd_per_hour=Decimal(1),
        desired=Desired.PRESENT,
        phase=phase,
        requested_seconds=requested_seconds,
        joined_seconds=joined_seconds,
        training_seconds=training_seconds,
        facts={Fact.NETWORK: network, **facts},
    )


def inside(*own: HeldInstance) -> list[str]:
    return [each.id for each in own if not waits_for_network(each, own)]


def test_the_first_that_joined_says_where_the_job_is() -> None:
    near = held("near", "a", InstancePhase.PREPARING, 10.0)
    far = held("far", "b", InstancePhase.READY, 20.0)
    booting = held("booting", "b", InstancePhase.BOOTING, None)
    assert inside(near, far, booting) == ["near"]
    assert inside(booting, far) == ["booting", "far"]


def test_an_instance_of_an_earlier_trial_comes_when_it_is_handed_over() -> None:
    """Admit an instance that had joined for another job before the training one."""
    old = held("old", "a", InstancePhase.TRAINING, 500.0, 520.0, requested_seconds=400.0)
    given = held(
        "given",
        "b",
        InstancePhase.PREPARING,
        100.0,
        requested_seconds=900.0,
        **{Fact.HANDED_OVER: "900.0"},
    )
    assert inside(old, given) == ["old"]


def test_those_that_have_trained_come_before_one_that_has_not() -> None:
    """The first has left; the second booted for longer than the new one elsewhere."""
    first = held("first", "a", InstancePhase.DRAINED, 10.0, 20.0)
    second = held("second", "a", InstancePhase.TRAINING, 200.0, 210.0)
    far = held("far", "b", InstancePhase.READY, 100.0)
    assert inside(second, far) == ["second"]
    assert "far" not in inside(first, second, far)


class Doorway:
    """A job's instances, each of which takes its next step when it is its turn, or leaves."""

    def __init__(self, networks: list[str]) -> None:
        self.own = [
            held(f"job-{index}", network, InstancePhase.BOOTING, None)
            for index, network in enumerate(networks)
        ]
        self._let_in: set[str] = set()
        self._now_seconds = 0.0

    def step(self, index: int) -> None:
        """Continue an agent, and answer its heartbeat."""
        self._now_seconds += 1.0
        one = self.own[index]
        if one.phase is InstancePhase.BOOTING:
            self._tell(index, phase=InstancePhase.PREPARING, joined_seconds=self._now_seconds)
        elif one.phase is InstancePhase.PREPARING:
            self._tell(index, phase=InstancePhase.READY)
        elif one.phase is InstancePhase.READY:
            if one.id in self._let_in:  # it was told so some time ago
                self._tell(index, phase=InstancePhase.STARTING)
            elif not waits_for_network(one, self.own):
                self._let_in.add(one.id)
        elif one.phase is InstancePhase.STARTING:
            self._tell(index, phase=InstancePhase.TRAINING, training_seconds=self._now_seconds)
        elif one.phase is InstancePhase.DRAINING:
            self._tell(index, phase=InstancePhase.DRAINED)

    def release(self, index: int) -> None:
        if self.own[index].phase not in (InstancePhase.BOOTING, InstancePhase.DRAINED):
            self._tell(index, phase=InstancePhase.DRAINING)

    def at_work(self) -> set[str]:
        """The networks in which there are scripts that have been started."""
        running = (InstancePhase.STARTING, InstancePhase.TRAINING)
        return {each.network for each in self.own if each.phase in running}

    def _tell(self, index: int, **changes: object) -> None:
        self.own[index] = replace(self.own[index], **changes)  # type: ignore[arg-type]


@given(
    st.lists(st.sampled_from("ab"), min_size=2, max_size=5),
    st.lists(st.tuples(st.sampled_from([False] * 5 + [True]), st.integers(0, 4)), max_size=60),
)
def test_scripts_run_in_one_network_whoever_comes_and_goes(
    networks: list[str], events: list[tuple[bool, int]]
) -> None:
    door = Doorway(networks)
    for leaves, index in events:
        if index < len(networks):
            door.release(index) if leaves else door.step(index)
        assert len(door.at_work()) <= 1
    for _ in range(8):
        for index in range(len(networks)):
            door.step(index)
    stay = [each for each in door.own if each.phase is not InstancePhase.DRAINED]
    assert not stay or door.at_work(), "somebody is let in"
