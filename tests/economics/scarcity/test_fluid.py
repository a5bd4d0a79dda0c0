from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.economics.pricing.price import upper_hull
from autoscaler.economics.scarcity import fluid
from autoscaler.goodput.throughput import FloatArray
from tests.economics.scarcity.cases import OneJob, some_jobs, together

SIZES = np.array([1.0, 2.0, 3.0, 4.0])


def finish_prices(jobs: list[OneJob], maximum: FloatArray) -> FloatArray:
    return fluid.finish_prices(together(jobs), maximum)


def linear(work: float = 100.0, value: float = 1.0, price: float = 0.0) -> OneJob:
    """Return a job with one example a second per device."""
    return OneJob(value, work, price * SIZES, SIZES, SIZES[None])


def test_limits_that_do_not_bind_have_no_price() -> None:
    jobs = [linear(), linear(200.0)]
    assert finish_prices(jobs, np.array([8.0])) == pytest.approx(np.zeros((2, 1)))
    assert finish_prices(jobs, np.array([np.inf])) == pytest.approx(np.zeros((2, 1)))


def test_the_job_that_finishes_first_pays_the_price_that_the_others_bid_then() -> None:
    short, long = finish_prices([linear(10.0), linear(1000.0)], np.array([4.0]))[:, 0].tolist()
    assert short > 0
    assert long == 0.0


def test_a_device_is_worth_what_the_next_in_line_would_pay() -> None:
    # Alone on 4 devices, each job's progress is worth 1 / 4; the long job still has that value.
    prices = finish_prices([linear(10.0), linear(1e6)], np.array([4.0]))
    assert prices[0, 0] == pytest.approx(0.25, rel=0.05)


def test_prices_of_limits_do_not_mix() -> None:
    alone = replace(linear(500.0), uses=np.stack([SIZES, 0 * SIZES]))
    short = replace(linear(20.0), uses=np.stack([0 * SIZES, SIZES]))
    long = replace(linear(1000.0), uses=np.stack([0 * SIZES, SIZES]))
    prices = finish_prices([alone, short, long], np.array([4.0, 4.0]))
    assert prices[:, 0] == pytest.approx([0.0, 0.0, 0.0])
    assert prices[1, 1] > 0
    assert prices[2, 1] == 0.0


@given(
    st.lists(
        st.tuples(st.floats(0.01, 10.0), st.floats(0.0, 1e4), st.floats(0.0, 2.0)),
        min_size=1,
        max_size=40,
    ),
    st.floats(0.5, 20.0),
)
def test_prices_are_finite_and_never_negative(
    jobs: list[tuple[float, float, float]], most: float
) -> None:
    prices = finish_prices(
        [linear(work, value, price) for value, work, price in jobs], np.array([most])
    )
    assert prices.shape == (len(jobs), 1)
    assert np.isfinite(prices).all()
    assert (prices >= 0).all()


@given(st.permutations(range(5)))
def test_the_order_of_jobs_does_not_matter(order: list[int]) -> None:
    jobs = [linear(10.0 * (i + 1), 0.5 + 0.3 * i) for i in range(5)]
    straight = finish_prices(jobs, np.array([6.0]))
    mixed = finish_prices([jobs[i] for i in order], np.array([6.0]))
    assert mixed == pytest.approx(straight[order])


def test_steps_in_goodput_are_filled_in() -> None:
    # The job runs on 4 devices only; the fluid run gives it half of them.
    steps = OneJob(1.0, 100.0, np.array([0.0]), np.array([4.0]), np.array([[4.0]]))
    prices = finish_prices([steps, replace(steps, work=200.0)], np.array([6.0]))
    assert prices[0, 0] > 0
    assert prices[1, 0] == 0.0


def test_no_jobs_have_no_prices() -> None:
    nothing = replace(
        together([linear()]), work=np.empty(0), value_of_time=np.empty(0), job=np.empty(0, int)
    )
    assert fluid.finish_prices(nothing, np.array([8.0])).shape == (0, 1)


@given(st.integers(0, 10**6), st.integers(1, 20))
def test_the_corners_of_many_hulls_are_those_of_each(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    job = np.repeat(np.arange(count), 9)
    use = np.sort(generator.integers(1, 30, (count, 9)), axis=1).astype(np.float64)
    use[:, 0] = 0.0
    worth = generator.normal(size=(count, 9)) * use
    corners = fluid._hull(job, use.ravel(), worth.ravel())
    for one in range(count):
        points = zip(use[one].tolist(), worth[one].tolist(), range(9), strict=True)
        expected = [max(which, 0) for _, _, which in upper_hull(list(points)[1:])]
        assert (corners[job[corners] == one] % 9).tolist() == expected


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 3), st.floats(0.05, 2.0))
@settings(max_examples=30)
def test_jobs_with_several_limits_and_holdings_have_finite_prices_in_any_order(
    seed: int, count: int, limits: int, share: float
) -> None:
    jobs = some_jobs(seed, count, limits)
    maximum = np.linspace(1.0, 0.5, limits) * share * 4 * count
    prices = finish_prices(jobs, maximum)
    assert np.isfinite(prices).all()
    assert (prices >= 0).all()
    assert finish_prices(jobs[::-1], maximum)[::-1] == pytest.approx(prices, rel=1e-6, abs=1e-9)
