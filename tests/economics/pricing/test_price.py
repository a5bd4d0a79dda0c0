from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.economics.pricing.price import (
    hull,
    price_of_progress,
    value_of_time_between,
)

POINTS = st.lists(
    st.tuples(st.floats(0.01, 100.0), st.floats(0.1, 1000.0)), min_size=1, max_size=30
)
VALUES = st.floats(0.0, 1000.0)


def best(points: list[tuple[float, float]], value: float) -> int:
    price, rate = np.array(points).T
    return int(np.argmin(price_of_progress(price, value, rate)))


@given(POINTS)
def test_no_value_of_time_buys_the_least_usd_per_progress(
    points: list[tuple[float, float]],
) -> None:
    price, rate = points[best(points, 0.0)]
    assert price / rate == min(p / g for p, g in points)


@given(POINTS)
def test_an_endless_value_of_time_buys_the_fastest(points: list[tuple[float, float]]) -> None:
    fastest = max(g for _, g in points)
    assert points[best(points, 1e12)][1] == pytest.approx(fastest)


@given(POINTS, VALUES, VALUES)
def test_goodput_and_price_of_the_choice_do_not_fall_with_the_value_of_time(
    points: list[tuple[float, float]], value: float, other_value: float
) -> None:
    low, high = sorted((value, other_value))
    (price, rate), (price_then, rate_then) = points[best(points, low)], points[best(points, high)]
    assert rate_then >= rate * (1 - 1e-9)
    assert price_then >= price * (1 - 1e-9) or rate_then == pytest.approx(rate)


@given(POINTS, VALUES, st.floats(0.01, 100.0))
def test_scaling_all_money_changes_nothing(
    points: list[tuple[float, float]], value: float, factor: float
) -> None:
    price, rate = np.array(points).T
    chosen = price_of_progress(price, value, rate)
    scaled = price_of_progress(factor * price, factor * value, rate)
    assert scaled == pytest.approx(factor * chosen)


@given(POINTS, VALUES)
def test_the_dominated_are_never_chosen(points: list[tuple[float, float]], value: float) -> None:
    price, rate = points[best(points, value)]
    assert not any(p < price * (1 - 1e-9) and g > rate for p, g in points)


@given(POINTS, VALUES)
def test_the_choice_at_any_value_of_time_is_on_the_hull(
    points: list[tuple[float, float]], value: float
) -> None:
    price, rate = np.array(points).T
    corners = hull(price, rate, np.ones(len(points), dtype=np.bool_))
    progress = price_of_progress(price, value, rate)
    assert progress[corners].min() == pytest.approx(progress.min())
    assert list(price[corners]) == sorted(set(price[corners]))
    assert list(rate[corners]) == sorted(set(rate[corners]))
    assert progress[corners[0]] == pytest.approx(progress.min()) or value > 0
    assert rate[corners[-1]] == rate.max()


def test_the_hull_leaves_out_what_is_not_allowed() -> None:
    price, rate = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 4.0])
    assert hull(price, rate, np.array([True, True, True])) == [1, 2]
    assert hull(price, rate, np.array([True, False, True])) == [2]
    assert hull(price, rate, np.array([False, False, False])) == []


def test_the_value_of_time_between_two_makes_them_alike() -> None:
    cheap, dear = (1.0, 10.0), (3.0, 20.0)
    value = value_of_time_between(cheap, dear)
    assert value == pytest.approx(1.0)
    assert (cheap[0] + value) / cheap[1] == pytest.approx((dear[0] + value) / dear[1])
    assert value_of_time_between((1.0, 10.0), (1.5, 20.0)) == 0.0
    assert value_of_time_between((1.0, 20.0), (3.0, 10.0)) == 0.0
