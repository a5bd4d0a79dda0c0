from __future__ import annotations

import numpy as np
import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.economics.forecasts.forecast import bands_of, fixed_sizes, range_of
from tests.economics import naive
from tests.economics.cases import LARGE, SMALL, job, model, snapshot

ONE = Allocation("local-small", 1, 1)


def test_fixed_sizes_run_from_launch_to_end() -> None:
    job_snapshot = job(instances=InstanceBounds(1, 2), held=ONE, spent_usd=5.0)
    forecasts = fixed_sizes(job_snapshot, (SMALL, LARGE), 9000.0)
    moment = snapshot(job_snapshot)
    assert [str(size_forecast.allocation) for size_forecast in forecasts] == [
        *("1 x local-large", "2 x local-large", "1 x local-small", "2 x local-small"),
    ]
    for size_forecast in forecasts:
        seconds = 6.0 + 9000.0 / naive.goodput(job_snapshot, moment, size_forecast.allocation)
        assert size_forecast.seconds.median == pytest.approx(seconds)
        usd = seconds * naive.price(job_snapshot, moment, size_forecast.allocation)
        assert size_forecast.usd.ninety_percent == pytest.approx(usd)


def test_bands_of_many_values_are_those_of_each() -> None:
    samples = np.random.default_rng(0).lognormal(size=(31, 7))
    bands = bands_of(samples)
    for index in range(7):
        one = range_of(samples[:, index])
        assert (bands[0, index], bands[1, index]) == (one.low, one.high)


def test_ninety_percent_is_beyond_the_median_where_the_model_is_unsure() -> None:
    unsure = job(models=model(draws=32, spread=0.3))
    (first, *_) = fixed_sizes(unsure, (SMALL,), 9000.0)
    draws = [d.beta_compute_seconds_per_example for d in unsure.models["core"].draws]
    seconds = np.sort([6.0 + 9000.0 * d for d in draws])
    assert first.seconds.median == pytest.approx(seconds[16])
    assert first.seconds.ninety_percent == pytest.approx(seconds[29])
