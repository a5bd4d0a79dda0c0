"""Forecasts of a whole job on spot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.lives import HazardByAge, LifetimeEstimate
from autoscaler.domain.objective import Objective
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts
from autoscaler.economics.forecasts.frontier import JobForecast, frontier
from autoscaler.economics.forecasts.spot import spot_field
from tests.economics.cases import NOW, SMALL, job, model, offer, snapshot

HOUR = 3600.0
SPOT = offer("spot", "0.03", reclaims_per_hour=0.5, boot_seconds=180.0)
FIRM = replace(SMALL, boot_seconds=180.0)
AGES = (0.0, 1800.0)
LIVES = LifetimeEstimate(
    reclaim=HazardByAge(AGES, (0.5 / HOUR, 0.5 / HOUR), (20.0, 20.0)),
    outage=HazardByAge(AGES, (1.0 / HOUR, 0.3 / HOUR), (20.0, 20.0)),
    usually_there=0.6,
)


def long_job(**changes: object) -> JobSnapshot:
    """Return a job of four hours on one instance."""
    plain = job(
        models=model(draws=32, spread=0.02),
        instances=InstanceBounds(1, 1),
        remaining_examples=4 * HOUR * 100.0,
        submitted_seconds=NOW,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def moment(job_snapshot: JobSnapshot, lives: LifetimeEstimate | None = LIVES) -> Snapshot:
    known = {} if lives is None else {"spot": lives}
    return snapshot(job_snapshot, offers=(SPOT, FIRM), lives=known)


def chosen(job_snapshot: JobSnapshot, lives: LifetimeEstimate | None = LIVES) -> JobForecast:
    plan = frontier(job_snapshot, moment(job_snapshot, lives))
    assert plan is not None
    assert plan.chosen is not None
    return plan.chosen


def test_reclaims_make_the_band_lopsided_and_it_is_the_same_every_time() -> None:
    without_reclaims, with_reclaims = chosen(long_job(), None), chosen(long_job())
    assert with_reclaims == chosen(long_job())
    assert with_reclaims.first.offer == without_reclaims.first.offer == "spot"
    assert (
        with_reclaims.seconds.high - with_reclaims.seconds.median
        > without_reclaims.seconds.high - without_reclaims.seconds.low
    )
    assert (
        with_reclaims.seconds.low
        < with_reclaims.seconds.median
        < with_reclaims.seconds.ninety_percent
    )
    assert with_reclaims.seconds.ninety_percent < with_reclaims.seconds.high
    assert with_reclaims.usd.low == pytest.approx(4 * 0.03, rel=0.1)


def test_a_deadline_bounds_the_finish_and_not_the_spend() -> None:
    free = chosen(long_job())
    kept = chosen(long_job(objective=Objective(deadline_seconds=NOW + 6 * HOUR)))
    assert kept.first.offer == "spot"
    assert kept.seconds.high <= 6 * HOUR < free.seconds.high
    assert kept.usd.high > 2 * free.usd.median


def test_what_is_not_reclaimed_is_forecast_as_it_was() -> None:
    job_snapshot = long_job(instances=InstanceBounds(1, 1, spot=False))
    assert chosen(job_snapshot) == chosen(job_snapshot, None)
    field = spot_field(job_snapshot, moment(job_snapshot), 0.0)
    assert field.runs(Allocation("local-small", 1, 1), None) is None


def test_checkpoints_and_what_is_lost_between_them_take_time() -> None:
    costs = long_job().switching
    slow = SwitchingCosts(costs.pause_seconds, costs.restore_seconds, checkpoint_seconds=60.0)
    lives = replace(LIVES, outage=HazardByAge(AGES, (1e3, 1e3), (1e9, 1e9)), usually_there=1.0)
    free, paid = (chosen(long_job(switching=switching), lives) for switching in (costs, slow))
    assert paid.first.offer == free.first.offer == "spot"
    # A checkpoint of 1 min every 11 min, and half an interval repeated at each of two reclaims.
    expected = 4 * HOUR * 60 / 600 + 2 * 300
    assert paid.seconds.median - free.seconds.median == pytest.approx(expected, rel=0.3)


def test_of_several_instances_the_others_go_on() -> None:
    job_snapshot = long_job(instances=InstanceBounds(1, 4))
    at = moment(job_snapshot)
    runs = spot_field(job_snapshot, at, 0.0).runs(Allocation("spot", 4, 1), None)
    rigid = replace(job_snapshot, instances=InstanceBounds(4, 4))
    stands = spot_field(rigid, at, 0.0).runs(Allocation("spot", 4, 1), None)
    assert runs is not None
    assert stands is not None
    assert runs.seconds.mean() < stands.seconds.mean()
