"""Weights of a dollar: the least ones at which all jobs of a budget keep within it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.budget import BudgetBasis, BudgetRoom, BudgetState
from autoscaler.economics.scarcity.budget_prices import SpendingJobs, budget_prices

HOUR = 3600.0
DAY = 24 * HOUR


def jobs_of(
    hours: list[float], members: list[list[bool]], value: float = 10.0, fixed: bool = False
) -> SpendingJobs:
    """Return jobs of so many hours on one instance of $1/h; they want 8 instances."""
    count = len(hours)
    sizes = np.arange(1, 9)
    rate = np.tile(100.0 * sizes**0.7, (count, 1))
    price = np.tile(sizes / HOUR, (count, 1))
    values = np.full(count, value / HOUR)
    cost = (price + values[:, None]) / rate
    return SpendingJobs(
        value_of_time=values,
        remaining=np.array(hours) * HOUR * 100.0,
        usd_per_second=price,
        rate=rate,
        exists=np.ones_like(rate, dtype=np.bool_),
        wished=cost.argmin(axis=1),
        is_fixed=np.full(count, fixed),
        is_member=np.array(members, dtype=np.bool_),
    )


def budget(usd: float, seconds: float = 30 * DAY, scope: str = "team:nlp") -> BudgetState:
    return BudgetState(scope, scope, (BudgetRoom(BudgetBasis.MONTH, usd, seconds),))


def spent(jobs: SpendingJobs, choices: object, seconds: float, index: int = 0) -> float:
    usd = jobs.spending(choices, seconds)  # type: ignore[arg-type]
    return float(usd[jobs.is_member[index]].sum())


@given(
    hours=st.lists(st.floats(1.0, 5000.0), min_size=1, max_size=6),
    usd=st.floats(1.0, 20_000.0),
)
def test_the_weight_is_the_least_within_the_budget(hours: list[float], usd: float) -> None:
    jobs = jobs_of(hours, [[True] * len(hours)])
    prices = budget_prices(jobs, [budget(usd)])
    weight, seconds = float(prices.weights[0]), 30 * DAY
    planned = spent(jobs, prices.choices, seconds)
    assert planned <= spent(jobs, jobs.wished, seconds) * (1 + 1e-9)
    least = spent(jobs, jobs.choices(np.full(len(hours), 1e9)), seconds)
    if spent(jobs, jobs.wished, seconds) <= usd:
        assert weight == 1.0 and prices.binding == (None,)
        assert (prices.choices == jobs.wished).all()
    elif least <= usd:
        assert weight > 1.0 and prices.binding[0] is not None
        assert planned <= usd * (1 + 1e-6)
        lower = spent(jobs, jobs.choices(np.full(len(hours), weight / 1.05)), seconds)
        assert lower > usd * (1 - 1e-6), "a lower weight spends more than there is"
    else:
        assert planned <= least * 1.1 + usd * 1e-6, "all are as frugal as they can be"


def test_all_jobs_of_a_budget_slow_alike_and_others_do_not() -> None:
    jobs = jobs_of([1e4] * 3, [[True, True, False]])
    wished = int(jobs.wished[0]) + 1
    prices = budget_prices(jobs, [budget(720.0 * (2 * wished - 2))])
    first, second, other = (prices.choices + 1).tolist()
    assert first == second < wished == other
    assert prices.job_weights[0] == prices.job_weights[1] == prices.weights[0] > 1.0
    assert prices.job_weights[2] == 1.0


def test_jobs_that_end_soon_keep_their_speed_where_the_month_can_pay_them() -> None:
    jobs = jobs_of([20.0], [[True]])
    prices = budget_prices(jobs, [budget(200.0)])
    assert prices.weights[0] == 1.0, "$0.28/h would be an even pace, but the job costs $40"


def test_a_lower_pace_is_enough_where_spending_is_ahead() -> None:
    room = BudgetRoom(BudgetBasis.PACE, 0.0, 3 * DAY, usd_per_hour=4.0)
    jobs = jobs_of([1e4, 1e4], [[True, True]])
    prices = budget_prices(jobs, [BudgetState("fleet", "the fleet", (room,))])
    assert prices.weights[0] > 1.0
    assert jobs.usd_per_hour(prices.choices).sum() <= 4.0 + 1e-6


def test_weights_of_several_budgets_add_up() -> None:
    jobs = jobs_of([1e4, 1e4], [[True, False], [True, True]])
    wished = int(jobs.wished[0]) + 1
    states = [budget(720.0 * (wished - 2)), budget(720.0 * (2 * wished - 4), scope="fleet")]
    prices = budget_prices(jobs, states)
    person, fleet = prices.weights
    assert fleet > 1.0
    assert np.isclose(prices.job_weights[0], person + fleet - 1.0)
    assert np.isclose(prices.job_weights[1], fleet)
    for index, state in enumerate(states):
        assert spent(jobs, prices.choices, 30 * DAY, index) <= state.rooms[0].usd * (1 + 1e-6)


def test_a_job_with_a_deadline_does_not_slow() -> None:
    jobs = jobs_of([1e4], [[True]], fixed=True)
    prices = budget_prices(jobs, [budget(10.0)])
    assert (prices.choices == jobs.wished).all()
