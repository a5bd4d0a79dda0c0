from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given

from autoscaler.domain.goodput import BatchBounds, NoiseScale, ThroughputParameters
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, ServiceReceived, Snapshot
from autoscaler.policies.published.pollux import PolluxParameters, PolluxPolicy
from tests.conformance.pool_policy import (
    KIND,
    SolvedPoolConformance,
    machines,
    placement_of,
    placements,
    pool_job,
    pool_snapshot,
    pools,
    shared_fixture,
    sizes,
)
from tests.economics.cases import ALL, NOW, model

POLLUX = PolluxPolicy()
PERFECT = ThroughputParameters(0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 1.0)
# A sync of 0.5 s beside the 0.64 s that one device takes for 64 examples.
POOR = ThroughputParameters(0.0, 0.01, 0.5, 0.5, 0.5, 0.5, 1.0)
LARGE = BatchBounds(64, 6400, 6400, adaptive=True)


class TestPollux(SolvedPoolConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> PolluxPolicy:
        return POLLUX


def scaling(
    name: str,
    theta: ThroughputParameters = PERFECT,
    measured: Iterable[tuple[int, int]] = ALL,
    **changes: object,
) -> JobSnapshot:
    """A job of two hours."""
    models = {KIND: model(theta, KIND, measured)}
    plain = pool_job(name, models=models, submitted_seconds=NOW - 7200.0)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_equal_jobs_share_equally_and_whole_machines_are_for_the_distributed() -> None:
    plan = POLLUX.plan(pool_snapshot(scaling("a"), scaling("b"), offers=machines(4)))
    assert placements(plan) == {
        "a": placement_of(node_000=4, node_001=4),
        "b": placement_of(node_002=4, node_003=4),
    }
    assert [decision.reason for decision in plan.decisions] == [
        "start a with 4 on node-000, 4 on node-001: 1 times the goodput of a fair share of 8",
        "start b with 4 on node-002, 4 on node-003: 1 times the goodput of a fair share of 8",
    ]


def test_devices_go_to_those_that_scale() -> None:
    jobs = (scaling("good"), scaling("poor", POOR))
    assert sizes(POLLUX.plan(pool_snapshot(*jobs, offers=machines(2)))) == {"good": 4, "poor": 1}


def test_a_larger_batch_is_counted_at_what_it_is_worth() -> None:
    """Grow at pure noise, where a batch is worth its examples and a sync costs little."""
    noisy, quiet = (NoiseScale(64, 1.0, variance, 0.05) for variance in (1e4, 1e-4))
    jobs = (scaling("noisy", POOR, batch=LARGE), scaling("quiet", POOR, batch=LARGE))
    jobs = (replace(jobs[0], noise=noisy), replace(jobs[1], noise=quiet))
    assert sizes(POLLUX.plan(pool_snapshot(*jobs, offers=machines(2)))) == {"noisy": 4, "quiet": 1}


@pytest.mark.parametrize(
    ("measured", "devices"), [((), 1), ([(1, 1)], 2), ([(1, 2)], 4), ([(1, 4)], 8)]
)
def test_a_job_grows_to_twice_what_it_was_measured_on(
    measured: list[tuple[int, int]], devices: int
) -> None:
    alone = scaling("a", measured=measured)
    assert sizes(POLLUX.plan(pool_snapshot(alone, offers=machines(4)))) == {"a": devices}


def test_what_was_not_measured_is_taken_to_scale() -> None:
    for measured, devices in (([(1, 1)], 2), ([(1, 1), (1, 2)], 1)):
        poor = scaling("a", POOR, measured)
        assert sizes(POLLUX.plan(pool_snapshot(poor))) == {"a": devices}
    across = replace(PERFECT, alpha_across_seconds=9.0)
    for measured, devices in (([(1, 4)], 8), ([(1, 4), (2, 8)], 4)):
        job = scaling("a", across, measured)
        assert sizes(POLLUX.plan(pool_snapshot(job))) == {"a": devices}


@pytest.mark.parametrize(("restarts", "devices"), [(0, 4), (100, 4), (150, 2)])
def test_a_job_that_has_restarted_often_stays(restarts: int, devices: int) -> None:
    """Two hours bear 100 restarts before doubling the speed is not worth the next."""
    job = scaling(
        "a", placement=placement_of(node_000=2), service=ServiceReceived(restarts=restarts)
    )
    moment = pool_snapshot(job, offers=machines(1))
    assert sizes(POLLUX.plan(moment)) == {"a": devices}


def test_a_job_moves_where_that_makes_room_for_more_than_it_loses() -> None:
    """A batch of one example has one device; the wide job is twice as fast on a whole machine."""
    one = BatchBounds(1, 1, 1, adaptive=False)
    small = [
        scaling(
            "a",
            batch=one,
            placement=placement_of(node_000=1),
            service=ServiceReceived(restarts=20),
        ),
        scaling("b", batch=one, placement=placement_of(node_001=1)),
    ]
    moment = pool_snapshot(scaling("wide"), *small)
    found = placements(POLLUX.plan(moment))
    assert found == {
        "a": placement_of(node_000=1),
        "b": placement_of(node_000=1),
        "wide": placement_of(node_001=4),
    }
    often = [replace(job, service=ServiceReceived(restarts=200)) for job in small]
    found = placements(POLLUX.plan(replace(moment, jobs=(moment.jobs[0], *often))))
    assert found == {
        "a": placement_of(node_000=1),
        "b": placement_of(node_001=1),
        "wide": placement_of(node_000=2),
    }


def test_nobody_is_left_out_as_long_as_there_are_devices() -> None:
    wide = scaling("wide", placement=placement_of(node_000=4))
    young = [pool_job(name, models={}, submitted_seconds=NOW) for name in "abc"]
    plan = POLLUX.plan(pool_snapshot(wide, *young, offers=machines(1)))
    assert sizes(plan) == {"a": 1, "b": 1, "c": 1, "wide": 1}


def test_a_job_whose_machine_is_gone_starts_elsewhere() -> None:
    job = pool_job("a", models={}, placement=placement_of(gone=1))
    assert placements(POLLUX.plan(pool_snapshot(job))) == {"a": placement_of(node_000=1)}


def test_parameters_bound_a_job() -> None:
    moment = pool_snapshot(scaling("a"), offers=machines(4))
    for parameters, devices in (
        (PolluxParameters(most_devices=8), 8),
        (PolluxParameters(most_machines=3), 12),
        (PolluxParameters(power=0.5), 16),
    ):
        assert sizes(PolluxPolicy(parameters).plan(moment)) == {"a": devices}


@pytest.mark.parametrize("wrong", [{"power": 0.0}, {"power": 2.0}, {"floor": 0.0}, {"growth": 0}])
def test_parameters_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}="):
        PolluxParameters(**wrong)  # type: ignore[arg-type]


@given(moment=pools())
@shared_fixture
def test_no_machine_has_two_distributed_jobs(moment: Snapshot) -> None:
    machines_of_distributed = _distributed(POLLUX.plan(moment))
    assert len(machines_of_distributed) == len(set(machines_of_distributed))


def _distributed(plan: Plan) -> list[str]:
    return [
        offer
        for found in placements(plan).values()
        if found is not None and len(found.shares) > 1
        for offer, _ in found.shares
    ]
