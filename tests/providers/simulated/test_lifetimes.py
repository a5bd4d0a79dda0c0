from __future__ import annotations

import numpy as np
import pytest

from providers.simulated.settings import (
    ExponentialLifetimes,
    LognormalLifetimes,
    SimulatedSettings,
)
from tests.providers.simulated.cloud import spot

DRAWS = 4000


def test_the_hazard_of_the_offer_gives_the_mean_life() -> None:
    hazardous = spot(reclaims_per_hour=0.5)
    settings = SimulatedSettings((hazardous,), seed=3)
    lives = [settings.lifetime_seconds(hazardous, ordinal) for ordinal in range(DRAWS)]
    assert np.mean(lives) == pytest.approx(7200.0, rel=0.05)
    assert np.std(lives) == pytest.approx(7200.0, rel=0.1)


def test_own_lifetimes_take_the_place_of_the_hazard() -> None:
    heavy = spot(reclaims_per_hour=0.5)
    lifetimes = LognormalLifetimes(median_seconds=3600.0, mean_seconds=10_000.0)
    settings = SimulatedSettings((heavy,), lifetimes={heavy.id: lifetimes}, seed=3)
    lives = [settings.lifetime_seconds(heavy, ordinal) for ordinal in range(DRAWS)]
    assert np.median(lives) == pytest.approx(3600.0, rel=0.1)
    assert np.mean(lives) == pytest.approx(10_000.0, rel=0.15)


@pytest.mark.parametrize(("median", "mean"), [(0.0, 1.0), (2.0, 1.0), (1.0, float("inf"))])
def test_a_lognormal_needs_a_mean_above_its_median(median: float, mean: float) -> None:
    with pytest.raises(ValueError, match="mean must be above the median"):
        LognormalLifetimes(median, mean)


@pytest.mark.parametrize("reclaims", [0.0, -1.0, float("nan"), float("inf")])
def test_a_hazard_is_positive(reclaims: float) -> None:
    with pytest.raises(ValueError, match="reclaims_per_hour"):
        ExponentialLifetimes(reclaims)
