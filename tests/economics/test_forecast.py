from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.economics.forecast import fixed_sizes, outlook
from tests.economics import naive
from tests.economics.cases import LARGE, SMALL, job, model, offer, snapshot

ONE = Allocation("local-small", 1, 1)


def test_fixed_sizes_run_from_launch_to_end() -> None:
    one = job(instances=InstanceBounds(1, 2), held=ONE, spent_usd=5.0)
    found = fixed_sizes(one, (SMALL, LARGE), 9000.0)
    moment = snapshot(one)
    assert [str(each.allocation) for each in found] == [
        *("1 x local-large", "2 x local-large", "1 x local-small", "2 x local-small"),
    ]
    for each in found:
        seconds = 6.0 + 9000.0 / naive.goodput(one, moment, each.allocation)
        assert each.seconds.median == pytest.approx(seconds)
        usd = seconds * naive.price(one, moment, each.allocation)
        assert each.usd.ninety_percent == pytest.approx(usd)


def test_ninety_percent_is_beyond_the_median_where_the_model_is_unsure() -> None:
    unsure = job(models=model(draws=32, spread=0.3))
    (first, *_) = fixed_sizes(unsure, (SMALL,), 9000.0)
    draws = [d.beta_compute_seconds_per_example for d in unsure.models["core"].draws]
    seconds = np.sort([6.0 + 9000.0 * d for d in draws])
    assert first.seconds.median == pytest.approx(seconds[16])
    assert first.seconds.ninety_percent == pytest.approx(seconds[29])


def test_the_outlook_adds_what_was_spent() -> None:
    one = job(held=ONE, spent_usd=1.0)
    found = outlook(one, (SMALL, LARGE), ONE)
    assert found is not None
    assert found.seconds.median == pytest.approx(90.0)
    assert found.usd.median == pytest.approx(1.0 + 90 * 0.10 / 3600)
    beyond = outlook(one, (SMALL, LARGE), Allocation("local-small", 8, 1))
    assert beyond is not None


def test_no_outlook_without_an_end_or_a_model() -> None:
    one = job(held=ONE)
    assert outlook(replace(one, remaining_examples=None), (SMALL,), ONE) is None
    assert outlook(one, (SMALL,), Allocation("gone", 1, 1)) is None
    assert outlook(one, (offer("card", kind="card"),), Allocation("card", 1, 1)) is None
