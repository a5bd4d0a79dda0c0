from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import NoiseCurve, NoiseScale
from autoscaler.domain.job import InstanceBounds
from autoscaler.economics.forecasts.curves import job_curves
from autoscaler.policies.registry import create_policy
from tests.economics import naive
from tests.economics.cases import LARGE, SMALL, devices, job, model, snapshot, valued

ONE, TWO = Allocation("local-small", 1, 1), Allocation("local-small", 2, 1)


def test_a_curve_has_goodput_and_price_of_each_size_of_each_offer() -> None:
    held = job(held=TWO, instances=InstanceBounds(1, 4), objective=valued(0.5))
    moment = snapshot(held)
    curves = job_curves(held, moment)
    assert curves is not None
    assert {offer: len(points) for offer, points in curves.points.items()} == {
        "local-large": 4,
        "local-small": 4,
    }
    assert curves.value_of_time_usd_per_hour == pytest.approx(0.5)
    for points in curves.points.values():
        for point in points:
            goodput = naive.goodput(held, moment, point.allocation)
            price = naive.price(held, moment, point.allocation)
            assert point.goodput == pytest.approx(goodput)
            assert point.band == pytest.approx((goodput, goodput))
            assert point.usd_per_hour == pytest.approx(price * 3600)
            paid = price + 0.5 / 3600
            assert point.usd_per_million == pytest.approx(1e6 * paid / goodput)
            assert point.is_measured and point.is_available
            assert point.goodput_ahead is None
    assert curves.held is not None and curves.held.allocation == TWO


def test_the_band_is_wide_where_the_model_is_unsure() -> None:
    unsure = job(models=model(draws=32, spread=0.3, measured=()))
    curves = job_curves(unsure, snapshot(unsure))
    assert curves is not None and curves.held is None
    first = curves.points["local-small"][0]
    assert first.band[0] < 0.8 * first.goodput and first.band[1] > 1.2 * first.goodput
    assert not first.is_measured


@pytest.mark.parametrize("value", [0.01, 0.3, 5.0])
def test_the_alternative_is_the_one_that_the_policy_takes_if_it_is_better(value: float) -> None:
    held = job(held=ONE, instances=InstanceBounds(1, 6), objective=valued(value))
    moment = snapshot(held)
    curves = job_curves(held, moment)
    (decision,) = create_policy("marginal").plan(moment).decisions
    assert curves is not None and curves.alternative is not None
    if decision.target != ONE:
        assert curves.alternative.allocation == decision.target
        assert curves.held is not None
        assert curves.alternative.usd_per_million < curves.held.usd_per_million
    else:
        assert curves.alternative.goodput > 0


def test_sizes_that_can_not_be_had_now_are_shown_as_such() -> None:
    held = job(held=ONE, instances=InstanceBounds(1, 4))
    moment = snapshot(held, limits=[devices(3)], unavailable=frozenset({"local-large"}))
    curves = job_curves(held, moment)
    assert curves is not None
    assert [point.is_available for point in curves.points["local-small"]] == [
        *(True, True, True, False),
    ]
    assert not any(point.is_available for point in curves.points["local-large"])


def test_a_held_size_beyond_the_bounds_has_a_point() -> None:
    four = Allocation("local-small", 4, 1)
    shrunk = job(held=four, instances=InstanceBounds(1, 2))
    curves = job_curves(shrunk, snapshot(shrunk))
    assert curves is not None and curves.held is not None
    assert curves.held.allocation == four and not curves.held.is_available


def test_wide_bounds_have_a_ladder_of_sizes_with_the_held_one() -> None:
    held_allocation = Allocation("local-small", 37, 1)
    wide = job(
        held=held_allocation,
        instances=InstanceBounds(1, 5000),
        batch=replace(job().batch, initial=10_000, maximum=10_000, device_maximum=10_000),
    )
    curves = job_curves(wide, snapshot(wide))
    assert curves is not None and curves.held is not None
    assert curves.held.allocation == held_allocation
    assert all(len(points) < 60 for points in curves.points.values())
    assert curves.points["local-small"][-1].allocation.instances == 5000


def test_a_noise_scale_that_grows_gives_another_goodput_ahead() -> None:
    grows = replace(job().batch, maximum=4096, device_maximum=4096, adaptive=True)
    noise = NoiseScale(64, 1.0, 1.0, 0.1)
    known = job(
        held=ONE,
        batch=grows,
        noise=noise,
        progress_examples=1000.0,
        remaining_examples=1e6,
        noise_curve=NoiseCurve((1000.0, 1e6), (64.0, 6400.0)),
    )
    curves = job_curves(known, snapshot(known))
    assert curves is not None
    largest = curves.points["local-large"][-1]
    assert largest.goodput_ahead is not None and largest.goodput_ahead > largest.goodput


def test_without_an_offer_there_are_no_curves() -> None:
    nowhere = job(instances=InstanceBounds(offers=("gone",)))
    assert job_curves(nowhere, snapshot(nowhere)) is None
    assert job_curves(job(models={}), snapshot(job(), offers=[SMALL, LARGE])) is None
