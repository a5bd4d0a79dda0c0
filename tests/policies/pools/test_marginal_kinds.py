from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autoscaler.domain.allocation import Placement
from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.snapshot import JobSnapshot, ServiceReceived, SwitchingCosts
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.conformance.pool_policy import (
    machine,
    placement_of,
    placements,
    pool_job,
    pool_snapshot,
)
from tests.economics.cases import ALL, NOW, model

PERFECT = ThroughputParameters(0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 1.0)
ONE_EACH = (machine(0, 1), machine(1, 1, "fast"))
FOUR_EACH = (machine(0, 4), machine(1, 4, "fast"))


def job_on(name: str, times_as_fast: float, **changes: object) -> JobSnapshot:
    """A job that a fast device trains so many times as fast as a card, and is known to scale."""
    seconds = {"card": 0.01, "fast": 0.01 / times_as_fast}
    models = {
        kind: model(replace(PERFECT, beta_compute_seconds_per_example=each), kind, ALL)
        for kind, each in seconds.items()
    }
    plain = pool_job(name, models=models)
    return replace(plain, **changes)  # type: ignore[arg-type]


def planned(*jobs: JobSnapshot, offers: object = ONE_EACH) -> Mapping[str, Placement | None]:
    moment = pool_snapshot(*jobs, offers=offers)  # type: ignore[arg-type]
    return placements(MarginalPolicy().plan(moment))


def test_a_fast_device_is_for_the_job_that_gains_more_of_it() -> None:
    found = planned(job_on("little", 1.2), job_on("much", 4.0))
    assert found == {"little": placement_of(node_000=1), "much": placement_of(node_001=1)}


def test_the_short_job_goes_first_on_the_fast_kind() -> None:
    short, long = (
        job_on(name, 3.0, remaining_examples=work)
        for name, work in (("short", 1e3), ("long", 1e6))
    )
    assert planned(short, long) == {
        "short": placement_of(node_001=1),
        "long": placement_of(node_000=1),
    }


def test_alone_a_job_has_the_most_of_the_kind_on_which_it_is_fastest() -> None:
    assert planned(job_on("a", 2.0), offers=FOUR_EACH) == {"a": placement_of(node_001=4)}
    assert planned(job_on("a", 0.5), offers=FOUR_EACH) == {"a": placement_of(node_000=4)}


def test_a_size_that_was_not_measured_is_hoped_to_scale() -> None:
    """Grow, though by the prior alone a sync costs more than a second device brings."""
    slow_sync = replace(PERFECT, alpha_within_seconds=5.0)
    models = {kind: model(slow_sync, kind, [(1, 1)]) for kind in ("card", "fast")}
    job = pool_job("a", models=models)
    (found,) = planned(job, offers=FOUR_EACH).values()
    assert found is not None
    assert found.devices == 2
    known = {kind: model(slow_sync, kind, ALL) for kind in ("card", "fast")}
    (found,) = planned(replace(job, models=known), offers=FOUR_EACH).values()
    assert found is not None
    assert found.devices == 1


@pytest.mark.parametrize(("alpha_seconds", "devices"), [(0.4, 4), (0.45, 1)])
def test_a_device_that_adds_next_to_nothing_is_left_to_others(
    alpha_seconds: float, devices: int
) -> None:
    """Four devices earn 14 % more than one, or 5 %: three that add 3 % each are worth having."""
    little = replace(PERFECT, alpha_within_seconds=alpha_seconds)
    job = replace(job_on("a", 1.0), models={"card": model(little, "card", ALL)})
    (found,) = planned(job, offers=FOUR_EACH).values()
    assert found is not None
    assert found.devices == devices


@pytest.mark.parametrize(("ran_seconds", "machine_number"), [(60.0, 0), (3600.0, 1)])
def test_a_dear_change_is_made_by_who_has_stayed_long(
    ran_seconds: float, machine_number: int
) -> None:
    """A pause of 350 s is not won back in 600 s at twice the speed, but in an hour."""
    job = job_on(
        "a",
        2.0,
        remaining_examples=1e7,
        placement=placement_of(node_000=1),
        service=ServiceReceived(started_seconds=NOW - ran_seconds),
        switching=SwitchingCosts(pause_seconds=350.0, restore_seconds=0.0),
    )
    assert planned(job) == {"a": placement_of(**{f"node_{machine_number:03}": 1})}


def test_reasons_tell_what_is_left_and_worth() -> None:
    moment = pool_snapshot(job_on("a", 2.0), offers=ONE_EACH)
    (decision,) = MarginalPolicy().plan(moment).decisions
    assert decision.reason == (
        "start a with 1 on node-001: 45 s left, worth 1 s of waiting per second"
    )
