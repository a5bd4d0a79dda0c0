from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.snapshot import GroundTruth, JobSnapshot, ServiceReceived
from autoscaler.policies.published.themis import ThemisParameters, ThemisPolicy
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    machines,
    placement_of,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import NOW


class TestThemis(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> ThemisPolicy:
        return ThemisPolicy()


def timed(
    name: str, age: float, ran: float, left: float, requested: int = 4, **changes: object
) -> JobSnapshot:
    """Return a job of an age that has run for `ran` seconds and needs `left` more."""
    service = ServiceReceived(
        ran * requested, started_seconds=NOW - age, changed_seconds=NOW - ran
    )
    return pool_job(
        name,
        requested,
        service=service,
        submitted_seconds=NOW - age,
        truth=GroundTruth({requested: 1.0}, left),
        **changes,
    )


def test_whoever_is_furthest_from_its_fair_finish_is_offered_devices_first() -> None:
    """Both have waited for 1000 s: that is more to the shorter one."""
    long, short = timed("long", 1000, 0, 5000), timed("short", 1000, 0, 500)
    plan = ThemisPolicy().plan(pool_snapshot(long, short, offers=machines(1)))
    assert sizes(plan) == {"long": 0, "short": 4}
    assert [decision.reason for decision in plan.decisions] == [
        "wait long: finish-time ratio 1.2; 4 of 4 devices go to jobs further behind",
        "start short with 4 on node-000: finish-time ratio 3",
    ]


def test_of_those_the_gain_for_a_device_decides() -> None:
    wide = timed("wide", 1000, 0, 500, requested=4)
    narrow = timed("narrow", 900, 0, 500, requested=1)
    moment = pool_snapshot(wide, narrow, offers=machines(1))
    for fairness, winner in ((0.8, "wide"), (0.0, "narrow")):
        policy = ThemisPolicy(ThemisParameters(fairness=fairness))
        assert sizes(policy.plan(moment))[winner] > 0


@pytest.mark.parametrize(
    ("held_seconds", "holder"),
    [(0, "holds"), (1199, "holds"), (1200, "waits"), (1259, "waits"), (1261, "holds")],
)
def test_a_lease_is_kept_to_its_end_and_then_auctioned_again(
    held_seconds: float, holder: str
) -> None:
    """Plans are 60 s apart."""
    holds = timed("holds", held_seconds, held_seconds, 9000, placement=placement_of(node_000=4))
    moment = pool_snapshot(holds, timed("waits", 1000, 0, 500), offers=machines(1))
    plan = ThemisPolicy().plan(replace(moment, replan_seconds=60.0))
    assert sizes(plan)[holder] == 4


def test_a_fair_share_is_that_of_the_whole_life_of_a_job() -> None:
    """Use the contention over a job's life: many earlier jobs make a long wait fair."""
    a, b = timed("a", 1000, 0, 700), timed("b", 1000, 0, 800)
    crowded = replace(a, service=replace(a.service, mean_active_jobs=40.0))
    moment = pool_snapshot(a, b, offers=machines(1))
    assert sizes(ThemisPolicy().plan(moment)) == {"a": 4, "b": 0}
    assert sizes(ThemisPolicy().plan(replace(moment, jobs=(crowded, b)))) == {"a": 0, "b": 4}


@pytest.mark.parametrize("values", [{"fairness": 1.1}, {"lease_seconds": 0.0}])
def test_parameters_that_make_no_auction_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        ThemisParameters(**values)
