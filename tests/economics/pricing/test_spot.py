from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.economics.pricing.spot import (
    checkpoint_interval_seconds,
    goodput_with_reclaims,
    goodput_with_restarts,
    price_with_refills,
)


def array(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values)


def test_one_of_two_is_missing_while_it_is_refilled() -> None:
    # With one reclaim in 900 s and 100 s to refill, one instance is missing a tenth of the time.
    goodput = goodput_with_reclaims(
        array(90.0), array(50.0), array(1 / 900), array(100.0), array(9)
    )
    assert goodput == pytest.approx([0.9 * 90 + 0.1 * 50 - 0.01 * 90])


def test_each_refill_boots_at_the_price_of_one() -> None:
    price = price_with_refills(array(0.5), array(4.0), array(4 / 3600), array(180.0))
    assert price == pytest.approx([4 * 0.5 + 4 / 3600 * 180 * 0.5])


@given(
    st.floats(0.1, 1e4), st.floats(0.0, 1.0), st.floats(0.0, 10.0), st.floats(0.0, 1e4),
    st.floats(0.0, 100.0),
)  # fmt: skip
def test_reclaims_never_help_nor_take_more_than_there_is(
    goodput: float, share: float, reclaims: float, refill: float, pause: float
) -> None:
    less = goodput * share
    mean_goodput = goodput_with_reclaims(
        array(goodput), array(less), array(reclaims), array(refill), array(pause)
    )
    assert 0 <= mean_goodput[0] <= goodput * (1 + 1e-12)
    worse = goodput_with_reclaims(
        array(goodput), array(less), array(2 * reclaims), array(refill), array(pause)
    )
    assert worse[0] <= mean_goodput[0] * (1 + 1e-12)


def test_a_job_that_starts_again_loses_what_it_has_not_saved() -> None:
    # L = 1/h, a checkpoint of 20 s after every 380 s: exp(L 400 s) - 1 = 0.1175, r = 100 s.
    goodput = goodput_with_restarts(array(90.0), array(1 / 3600), array(100.0), 20.0, 380.0)
    expected = 90.0 * 380.0 / (math.expm1(400 / 3600) * (3600 + 100))
    assert goodput == pytest.approx([expected])
    assert 0.85 * 90 < goodput[0] < 0.9 * 90


def test_the_interval_between_checkpoints_is_that_of_young_and_daly() -> None:
    short = checkpoint_interval_seconds(10.0, array(1 / 3600))
    assert short == pytest.approx([math.sqrt(2 * 10 * 3600)], rel=0.03)
    assert checkpoint_interval_seconds(100.0, array(1.0)) == pytest.approx([1.0])


@given(st.floats(0.1, 100.0), st.floats(1e-5, 1e-3), st.floats(0.3, 3.0))
def test_no_other_interval_is_better(cost: float, hazard: float, factor: float) -> None:
    best = checkpoint_interval_seconds(cost, array(hazard))
    mean_goodput = goodput_with_restarts(array(1.0), array(hazard), array(60.0), cost, None)
    other = float(best[0]) * factor
    goodput = goodput_with_restarts(array(1.0), array(hazard), array(60.0), cost, other)
    assert goodput[0] <= mean_goodput[0] * (1 + 1e-3)


def test_checkpoints_that_cost_nothing_leave_only_the_starts() -> None:
    goodput = goodput_with_restarts(array(90.0), array(1 / 900), array(100.0), 0.0, None)
    assert goodput == pytest.approx([81.0])
