"""Who of a job's instances is let in, where they can't all reach each other."""

from __future__ import annotations

from decimal import Decimal

from autoscaler.controller.networks import waits_outside
from autoscaler.domain.instance import (
    HANDED_OVER_FACT,
    NETWORK_FACT,
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
        facts={NETWORK_FACT: network, **facts},
    )


def inside(*own: HeldInstance) -> list[str]:
    return [each.id for each in own if not waits_outside(each, own)]


def test_the_first_that_joined_says_where_the_job_is() -> None:
    near = held("near", "a", InstancePhase.PREPARING, 10.0)
    far = held("far", "b", InstancePhase.READY, 20.0)
    booting = held("booting", "b", InstancePhase.BOOTING, None)
    assert inside(near, far, booting) == ["near"]
    assert inside(booting, far) == ["booting", "far"]


def test_an_instance_of_an_earlier_trial_comes_when_it_is_handed_over() -> None:
    """It had joined long before the one that trains: for another job."""
    old = held("old", "a", InstancePhase.TRAINING, 500.0, 520.0, requested_seconds=400.0)
    given = held(
        "given",
        "b",
        InstancePhase.PREPARING,
        100.0,
        requested_seconds=900.0,
        **{HANDED_OVER_FACT: "900.0"},
    )
    assert inside(old, given) == ["old"]


def test_those_that_have_trained_come_before_one_that_has_not() -> None:
    """The first has left; the second booted for longer than the new one elsewhere."""
    first = held("first", "a", InstancePhase.DRAINED, 10.0, 20.0)
    second = held("second", "a", InstancePhase.TRAINING, 200.0, 210.0)
    far = held("far", "b", InstancePhase.READY, 100.0)
    assert inside(second, far) == ["second"]
    assert "far" not in inside(first, second, far)
