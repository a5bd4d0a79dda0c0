from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.economics.pricing.objectives import (
    PriceRange,
    price_range,
    value_of_time,
    value_of_time_when_late,
)
from autoscaler.economics.supply.supply import supply_of
from tests.economics.cases import devices, job, model, offer, snapshot, valued

PRICES = PriceRange(cheapest=0.10 / 3600, dearest=0.76 / 3600)


def test_each_preference_means_a_value_of_time() -> None:
    assert value_of_time(Objective(), PRICES) == PRICES.cheapest
    assert value_of_time(Objective(Preference.CHEAPEST), PRICES) == 0.0
    assert value_of_time(Objective(Preference.FASTEST), PRICES) == pytest.approx(7.6 / 3600)
    assert value_of_time(valued(40.0), PRICES) == pytest.approx(40 / 3600)


def test_late_jobs_go_on_as_stated() -> None:
    fastest = Objective(deadline_seconds=1.0, after_deadline=AfterDeadline.FASTEST)
    assert value_of_time_when_late(fastest, PRICES) == PRICES.most
    assert value_of_time_when_late(Objective(deadline_seconds=1.0), PRICES) == PRICES.cheapest


def test_the_least_bid_grows_with_each_hour_of_waiting() -> None:
    assert PRICES.least(0.0) == pytest.approx(0.001 / 3600)
    assert PRICES.least(3599.0) == PRICES.least(0.0)
    assert PRICES.least(7200.0) == pytest.approx(0.003 / 3600)


def test_the_range_is_that_of_the_bounds_whatever_is_to_be_had_now() -> None:
    job_snapshot = job(instances=InstanceBounds(2, 4))
    card = offer("card", "9.00", kind="card")
    moment = snapshot(job_snapshot, limits=[devices(2)], unavailable=frozenset({"local-large"}))
    moment = replace(moment, offers=(*moment.offers, card))
    prices = price_range(job_snapshot, supply_of(moment))
    assert (prices.cheapest * 3600, prices.dearest * 3600) == pytest.approx((0.20, 0.76))
    assert prices.most * 3600 == pytest.approx(7.6)
    assert price_range(
        job_snapshot, supply_of(moment), most_times=2.0
    ).most * 3600 == pytest.approx(1.52)
    both = job(models={"core": model(), "card": model(kind="card")})
    assert price_range(both, supply_of(moment)).dearest * 3600 == pytest.approx(36.0)


def test_a_job_that_may_use_nothing_bids_nothing() -> None:
    job_snapshot = job(instances=InstanceBounds(offers=("none",)))
    prices = price_range(job_snapshot, supply_of(snapshot(job_snapshot)))
    assert (prices.cheapest, prices.most) == (0.0, 0.0)
