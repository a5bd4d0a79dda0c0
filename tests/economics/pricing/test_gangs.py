"""Prices of gangs, compared with draws of the events that the formulas assume."""

from __future__ import annotations

import numpy as np
import pytest

from autoscaler.domain.lives import HazardByAge, LifetimeEstimate
from autoscaler.economics.pricing.gangs import (
    BOOT_DEVIATION_SHARE,
    gang_boot_seconds,
    gang_wait_seconds,
    lives_of_gang,
)
from autoscaler.economics.pricing.reclaims import SpotJob, Zone, runs_on_spot
from autoscaler.economics.pricing.spot import goodput_with_reclaims, price_with_refills

HOUR = 3600.0


@pytest.mark.parametrize("gang", [1, 2, 4, 16])
def test_the_slowest_boot_is_the_mean_of_the_largest_draw(gang: int) -> None:
    exponential = np.random.default_rng(1).exponential(size=(100_000, gang))
    boots = 120.0 * (1.0 + BOOT_DEVIATION_SHARE * (exponential - 1.0))
    assert gang_boot_seconds(120.0, gang) == pytest.approx(boots.max(axis=1).mean(), rel=0.01)


@pytest.mark.parametrize("gang", [1, 2, 4, 16])
def test_a_gang_waits_until_there_is_capacity_for_its_last_instance(gang: int) -> None:
    waits = 600.0 * np.random.default_rng(2).exponential(size=(100_000, gang))
    assert gang_wait_seconds(600.0, gang) == pytest.approx(waits.max(axis=1).mean(), rel=0.02)


@pytest.mark.parametrize(("gangs", "gang"), [(4, 1), (4, 2), (2, 4)])
def test_a_reclaim_takes_a_gang_and_its_refill_is_of_a_whole_one(gangs: int, gang: int) -> None:
    """Draw the losses of each gang; goodput counts the gangs that train, n of all."""
    per_second, boot, seconds = 0.05 / HOUR, 300.0, 100_000 * HOUR
    generator = np.random.default_rng(3)
    trained = bought = 0.0
    for _ in range(gangs):
        lives = generator.exponential(1.0 / (gang * per_second), size=int(seconds / HOUR))
        ends = np.cumsum(lives + boot)
        count = int(np.searchsorted(ends, seconds))
        trained += lives[:count].sum()
        bought += count * gang
    reclaims = np.array(gangs * gang * per_second)
    full, left = np.array(float(gangs)), np.array(gangs - 1.0)
    expected = goodput_with_reclaims(full, left, reclaims, np.array(boot), np.zeros(1))
    assert expected[0] == pytest.approx(trained / seconds, rel=0.01)
    alone = np.array(gangs * gang * 2.0)
    price = price_with_refills(
        np.array(2.0), np.array(gangs * gang), reclaims, np.array(boot), gang
    )
    assert price - alone == pytest.approx(2.0 * bought * boot / seconds, rel=0.03)


def test_a_lost_gang_bills_only_the_others_during_an_outage() -> None:
    """Compare four instances in gangs of two with two that are lost as often as a gang."""
    reclaim = HazardByAge((0.0,), (1.0 / HOUR,), (1e9,))
    twice = HazardByAge((0.0,), (2.0 / HOUR,), (1e9,))
    outage = HazardByAge((0.0,), (3.0 / HOUR,), (1e9,))
    work = np.full(4000, 8 * HOUR)

    def run(hazard: HazardByAge, usd: float, count: int, gang: int) -> tuple[float, float]:
        zone = Zone(LifetimeEstimate(hazard, outage, usually_there=0.75), 180.0, usd / HOUR)
        stay = SpotJob(work, (zone,), count, 0.5, 1.0, 0.0, lost_together=gang)
        runs = runs_on_spot(stay)
        return float(runs.seconds.mean()), float(runs.usd.mean())

    assert run(reclaim, 0.5, 4, 2) == pytest.approx(run(twice, 1.0, 2, 1), rel=1e-9)


def test_an_order_of_a_whole_gang_is_refused_more_often() -> None:
    hazard = HazardByAge((0.0, 600.0), (1e-3, 2e-3), (5.0, 5.0))
    lives = LifetimeEstimate(hazard, hazard, there=0.8, out_seconds=60.0, usually_there=0.9)
    assert lives_of_gang(lives, 1) == lives
    four = lives_of_gang(lives, 4)
    assert four.reclaim == lives.reclaim
    has_capacity = np.random.default_rng(4).random((100_000, 4)) < 0.8
    assert four.there == pytest.approx(has_capacity.all(axis=1).mean(), rel=0.02)
    assert four.usually_there == pytest.approx(0.9**4)
    waits = np.random.default_rng(5).exponential(1.0 / 1e-3, size=(100_000, 4)).max(axis=1)
    assert 1.0 / four.outage.per_second[0] == pytest.approx(waits.mean(), rel=0.02)
