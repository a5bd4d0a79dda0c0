from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoscaler.domain.lives import HazardByAge, LifetimeEstimate
from autoscaler.economics.pricing.reclaims import FirmFallback, SpotJob, Zone, runs_on_spot

HOUR = 3600.0
AGES = (0.0, 600.0, 7200.0)
SURE = (1e9,) * 3


def constant(per_hour: float, ends: tuple[float, ...] = SURE) -> HazardByAge:
    return HazardByAge(AGES, (per_hour / HOUR,) * 3, ends)


def zone(per_hour: float, out_seconds: float, **changes: float) -> Zone:
    outage = constant(HOUR / out_seconds)
    there_seconds = HOUR / per_hour
    share = there_seconds / (there_seconds + out_seconds)
    lives = LifetimeEstimate(constant(per_hour), outage, usually_there=share)
    return Zone(replace(lives, **changes), 180.0, 0.5 / HOUR)


def stay(*zones: Zone, hours: float = 8.0, runs: int = 4000, **changes: object) -> SpotJob:
    work = np.full(runs, hours * HOUR)
    plain = SpotJob(work, zones, 1, share_left=0.0, pause_seconds=0.0, again_seconds=0.0)
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("per_hour", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("out_seconds", [1.0, 1200.0])
def test_the_mean_is_that_of_restarts_at_a_constant_hazard(
    per_hour: float, out_seconds: float
) -> None:
    """Compare with the mean of restarts (Daly 2006), plus an outage for each of e^(Ls) starts."""
    runs = runs_on_spot(stay(zone(per_hour, out_seconds)))
    hazard, start, work = per_hour / HOUR, 180.0, 8 * HOUR
    tries = float(np.exp(hazard * start))
    again = tries * out_seconds + (tries - 1.0) / hazard
    expected = work + hazard * work * again + again - out_seconds
    assert runs.seconds.mean() == pytest.approx(expected, rel=0.02)
    waited = (hazard * work * tries + tries - 1.0) * out_seconds
    assert runs.usd.mean() == pytest.approx((expected - waited) * 0.5 / HOUR, rel=0.02)


def test_another_zone_is_held_meanwhile_and_none_is_waited_for_where_one_is_there() -> None:
    first, second = zone(0.5, 4 * HOUR), zone(0.5, 4 * HOUR)
    alone, both = (runs_on_spot(stay(*zones)) for zones in ((first,), (first, second)))
    assert both.seconds.mean() < 0.8 * alone.seconds.mean()
    never_out = zone(0.5, 1.0)
    assert runs_on_spot(stay(first, never_out)).seconds.mean() < 1.1 * 8 * HOUR


def test_who_begins_in_an_outage_waits_first_and_the_longer_it_lasts_the_longer_it_will() -> None:
    falling = HazardByAge(AGES, (6 / HOUR, 1 / HOUR, 0.2 / HOUR), SURE)
    lives = LifetimeEstimate(constant(1e-6), falling, there=0.0)
    means = []
    for age in (0.0, 1800.0, 8000.0):
        spot_zone = Zone(replace(lives, out_seconds=age), 180.0, 0.1)
        means.append(runs_on_spot(stay(spot_zone)).seconds.mean() - 8 * HOUR - 180.0)
    assert means == sorted(means)
    assert means[-1] == pytest.approx(5 * HOUR, rel=0.05)


def test_with_a_deadline_all_runs_end_before_it_and_those_that_were_out_pay_for_it() -> None:
    spot_zone = zone(0.5, 2 * HOUR)
    firm = FirmFallback(180.0, 3.0 / HOUR, np.ones(4000), until_seconds=10 * HOUR)
    free, kept = runs_on_spot(stay(spot_zone)), runs_on_spot(stay(spot_zone, firm=firm))
    assert (free.seconds > 10 * HOUR).mean() > 0.3
    assert kept.seconds.max() <= 10 * HOUR
    same = free.seconds < 9 * HOUR
    assert np.isclose(kept.seconds.min(), free.seconds.min())
    assert kept.usd[~same].mean() > 1.2 * kept.usd[same].mean()


def test_who_can_not_wait_bridges_outages_at_a_price() -> None:
    spot_zone = zone(0.5, 2 * HOUR)
    firm = FirmFallback(180.0, 3.0 / HOUR, np.ones(4000), patience_seconds=600.0)
    waits, bridges = runs_on_spot(stay(spot_zone)), runs_on_spot(stay(spot_zone, firm=firm))
    assert bridges.seconds.mean() < 0.75 * waits.seconds.mean()
    assert bridges.usd.mean() > 1.5 * waits.usd.mean()


def test_the_others_go_on_while_one_is_missing() -> None:
    spot_zone = zone(0.5, 600.0)
    four = stay(spot_zone, instances=4)
    stands, goes_on = (runs_on_spot(replace(four, share_left=s)) for s in (0.0, 0.75))
    assert goes_on.seconds.mean() < stands.seconds.mean()
    loses = runs_on_spot(replace(four, share_left=0.75, again_seconds=600.0))
    assert loses.seconds.mean() > goes_on.seconds.mean() + 60.0


def test_what_is_not_known_well_makes_the_band_wider_and_nothing_else_moves_it() -> None:
    def width(ends: float) -> float:
        hazard = HazardByAge(AGES, (0.3 / HOUR,) * 3, (ends,) * 3)
        lives = LifetimeEstimate(hazard, constant(1.0))
        low, high = np.quantile(runs_on_spot(stay(Zone(lives, 180.0, 0.1))).seconds, (0.05, 0.95))
        return float(high - low)

    assert width(1.0) > 1.1 * width(1e9)
    assert width(1.0) == width(1.0)


def test_a_run_that_never_ends_is_cut_short() -> None:
    runs = runs_on_spot(stay(zone(60.0, 60.0), runs=8))
    assert np.isfinite(runs.seconds).all()
    with pytest.raises(ValueError, match="no zone"):
        runs_on_spot(stay())
