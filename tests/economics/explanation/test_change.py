from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.explanation.change import GoodputChange
from autoscaler.economics.fleets.facts import facts_of_one
from autoscaler.economics.pricing.price import price_of_progress
from tests.economics.cases import SMALL, job, snapshot
from tests.economics.choice.test_demands import wish_of

PLAIN = GoodputChange(
    rate_before=100.0,
    rate_after=190.0,
    usd_per_second_before=0.10 / 3600,
    usd_per_second_after=0.20 / 3600,
    value_of_time=0.10 / 3600,
    boot_seconds=6.0,
    trains_during_boot=True,
    cost_usd=0.6 / 3600,
)
RATES = st.floats(0.1, 1000.0)
PRICES = st.floats(0.01, 100.0)


@given(RATES, RATES, PRICES, PRICES, st.floats(0.0, 100.0))
def test_the_chord_beats_the_average_where_the_price_of_progress_falls(
    slow: float, fast: float, low: float, high: float, value: float
) -> None:
    low, high = sorted((low, high))
    figures = GoodputChange(slow, fast, low, high, value, 0.0, True, 0.0)
    before, after = (
        float(price_of_progress(price, value, rate)) for price, rate in ((low, slow), (high, fast))
    )
    if high > low and abs(after - before) > 1e-9 * before:
        assert (figures.marginal > figures.average) == (after < before)


def test_figures_by_hand() -> None:
    assert PLAIN.marginal == pytest.approx(900.0)
    assert PLAIN.average == pytest.approx(500.0)
    # 190 examples a second, at the earlier price of 100, are worth $0.38/h and cost $0.30/h.
    assert PLAIN.payback_seconds == pytest.approx(0.6 / 0.08)
    assert PLAIN.figures()["goodput_after"] == 190.0
    assert PLAIN.figures()["usd_per_hour_before"] == pytest.approx(0.10)


def test_what_does_not_pay_has_no_payback_and_all_figures_are_finite() -> None:
    worse = replace(PLAIN, rate_after=110.0)
    assert worse.payback_seconds is None
    assert "payback_seconds" not in worse.figures()
    level = replace(PLAIN, usd_per_second_after=PLAIN.usd_per_second_before)
    assert level.marginal == math.inf
    start = replace(PLAIN, rate_before=0.0, usd_per_second_before=0.0, value_of_time=0.0)
    assert start.payback_seconds is None
    for change in (level, start):
        assert all(math.isfinite(figure) for figure in change.figures().values())


def test_the_change_of_a_wish() -> None:
    job_snapshot = job(held=Allocation("local-small", 1, 1))
    moment = snapshot(job_snapshot, offers=(SMALL,))
    choice = wish_of(job_snapshot, moment)
    given = [
        facts_of_one(choice, Allocation("local-small", instances, 1)).given for instances in (1, 2)
    ]
    stays, figures = (option.change for option in given if option is not None)
    assert stays is not None and figures is not None
    assert figures.rate_before == pytest.approx(100.0)
    assert figures.usd_per_second * 3600 == pytest.approx(0.10)
    assert figures.boot_seconds == 6.0
    assert figures.cost_usd * 3600 == pytest.approx(6 * 0.10 + 0.05 * 0.30)
    assert stays.cost_usd == 0.0
