from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.errors import SolverError
from autoscaler.economics.supply.supply import fits
from autoscaler.policies.marginal import limit_sharing as decomposition
from autoscaler.policies.marginal.exact import SolverLimits
from autoscaler.policies.marginal.limit_sharing import Columns, allocate, useful

fewer = settings(max_examples=50)
EXACT, RELAXED = SolverLimits(exact_jobs=24), SolverLimits(exact_jobs=0)


@dataclass(frozen=True)
class Bid:
    """Values and uses (R, C) of the C allocations of one job, and the value of nothing."""

    value: np.ndarray
    uses: np.ndarray
    nothing: float
    held: int | None = None


@dataclass(frozen=True)
class Solution:
    choices: tuple[int | None, ...]
    shadow_prices: np.ndarray
    gap: float
    trouble: str | None


def solve(bids: list[Bid], maximum: np.ndarray, effort: SolverLimits) -> Solution:
    room = np.maximum(maximum, 0.0)
    counts = [len(bid.value) for bid in bids]
    job = np.repeat(np.arange(len(bids)), counts)
    choice = np.concatenate([np.arange(count) for count in counts])
    value = np.concatenate([bid.value - bid.nothing for bid in bids])
    uses = np.concatenate([bid.uses for bid in bids], axis=1)
    held = np.array([-1 if bid.held is None else bid.held for bid in bids])
    kept = np.flatnonzero(useful(value, uses, room))
    is_held = choice[kept] == held[job[kept]]
    columns = Columns(job[kept], value[kept], uses[:, kept], room, np.flatnonzero(is_held))
    found = allocate(columns, effort)
    chosen = {int(job[row]): int(choice[row]) for row in kept[found.chosen].tolist()}
    choices = tuple(chosen.get(index) for index in range(len(bids)))
    return Solution(choices, found.prices, found.gap, found.trouble)


@st.composite
def bids(draw: st.DrawFn, jobs: int = 4, limits: int = 2) -> tuple[list[Bid], np.ndarray]:
    found = []
    for _ in range(draw(st.integers(1, jobs))):
        count = draw(st.integers(1, 4))
        value = [draw(st.floats(-1e-3, 5e-3)) for _ in range(count)]
        uses = [[float(draw(st.integers(0, 4))) for _ in range(count)] for _ in range(limits)]
        nothing = draw(st.sampled_from([0.0, -1e-3, -1e-2]))
        found.append(Bid(np.array(value), np.array(uses), nothing))
    return found, np.array([float(draw(st.integers(0, 6))) for _ in range(limits)])


def total(found: list[Bid], choices: tuple[int | None, ...]) -> float:
    return sum(
        bid.nothing if choice is None else float(bid.value[choice])
        for bid, choice in zip(found, choices, strict=True)
    )


def uses(found: list[Bid], choices: tuple[int | None, ...]) -> np.ndarray:
    used = np.zeros(len(found[0].uses))
    for bid, choice in zip(found, choices, strict=True):
        if choice is not None:
            used = used + bid.uses[:, choice]
    return used


def best(found: list[Bid], maximum: np.ndarray) -> float:
    options = [[None, *range(len(bid.value))] for bid in found]
    return max(
        total(found, choices)
        for choices in itertools.product(*options)
        if (uses(found, choices) <= maximum).all()
    )


@given(bids())
@fewer
def test_few_jobs_get_the_best_there_is(case: tuple[list[Bid], np.ndarray]) -> None:
    found, maximum = case
    made = solve(found, maximum, EXACT)
    assert made.trouble is None
    assert fits(uses(found, made.choices), maximum).all()
    assert total(found, made.choices) == pytest.approx(best(found, maximum), rel=1e-6, abs=1e-9)
    assert made.gap <= 1e-8


@given(bids())
@fewer
def test_many_jobs_are_no_further_from_it_than_the_gap(
    case: tuple[list[Bid], np.ndarray],
) -> None:
    found, maximum = case
    made = solve(found, maximum, RELAXED)
    assert fits(uses(found, made.choices), maximum).all()
    assert total(found, made.choices) >= best(found, maximum) - made.gap - 1e-9


@given(bids(jobs=6, limits=1))
@fewer
def test_the_gap_is_at_most_one_step_of_one_job_for_each_limit(
    case: tuple[list[Bid], np.ndarray],
) -> None:
    found, maximum = case
    largest = max(float(bid.value.max()) - bid.nothing for bid in found)
    assert solve(found, maximum, RELAXED).gap <= max(largest, 0.0) + 1e-9


@given(bids())
@fewer
def test_limits_that_leave_room_for_all_have_no_price(
    case: tuple[list[Bid], np.ndarray],
) -> None:
    found, maximum = case
    made = solve(found, maximum + 1000.0, EXACT)
    assert made.shadow_prices == pytest.approx(np.zeros(2))
    assert made.gap == 0.0
    for bid, choice in zip(found, made.choices, strict=True):
        given_value = bid.nothing if choice is None else bid.value[choice]
        assert given_value == pytest.approx(max(bid.nothing, float(bid.value.max())), abs=1e-11)


@given(bids())
@fewer
def test_one_more_unit_is_worth_no_more_than_its_shadow_price(
    case: tuple[list[Bid], np.ndarray],
) -> None:
    found, maximum = case
    # Every allocation by itself has room already.
    maximum = maximum + 4
    made = solve(found, maximum, RELAXED)
    bound = total(found, made.choices) + made.gap
    for limit in range(2):
        more = best(found, maximum + np.eye(2)[limit])
        assert more <= bound + made.shadow_prices[limit] + 1e-8


@given(bids(limits=1), st.integers(0, 3), st.floats(1.0, 10.0))
@fewer
def test_a_job_whose_progress_is_worth_more_never_makes_less(
    case: tuple[list[Bid], np.ndarray], which: int, factor: float
) -> None:
    found, maximum = case
    which %= len(found)
    rate = found[which].uses[0] ** 0.7
    price = 2e-4 * found[which].uses[0]
    rates = []
    for worth in (1e-3, 1e-3 * factor):
        bid = Bid(worth * rate - price, found[which].uses, 0.0)
        made = solve([*found[:which], bid, *found[which + 1 :]], maximum, EXACT)
        choice = made.choices[which]
        rates.append(0.0 if choice is None else float(rate[choice]))
    assert rates[1] >= rates[0] - 1e-9


@given(bids(), st.floats(0.01, 100.0))
@fewer
def test_the_unit_of_money_does_not_matter(
    case: tuple[list[Bid], np.ndarray], factor: float
) -> None:
    found, maximum = case
    scaled = [Bid(factor * bid.value, bid.uses, factor * bid.nothing) for bid in found]
    made, other = solve(found, maximum, EXACT), solve(scaled, maximum, EXACT)
    assert total(found, other.choices) == pytest.approx(
        total(found, made.choices), rel=1e-6, abs=1e-9
    )


def small_knapsack() -> tuple[list[Bid], np.ndarray]:
    """The worthiest per device does not belong to the best."""
    sizes = [(3.2, 2.0), (3.0, 2.0), (3.3, 3.0)]
    return [Bid(np.array([v]), np.array([[u]]), 0.0) for v, u in sizes], np.array([5.0])


def test_exactly_beats_rounding_where_steps_are_big() -> None:
    found, maximum = small_knapsack()
    assert solve(found, maximum, EXACT).choices == (0, None, 0)
    assert solve(found, maximum, RELAXED).choices == (0, 0, None)


@pytest.mark.parametrize("broken", ["_prices_of_least_bound", "solve_exactly"])
def test_a_solver_that_fails_leaves_a_plan_within_the_limits(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise SolverError("no solution")

    monkeypatch.setattr(decomposition, broken, fail)
    found, maximum = small_knapsack()
    made = solve(found, maximum, EXACT)
    assert made.trouble == "no solution"
    assert made.choices == (0, 0, None)
    assert total(found, made.choices) >= best(found, maximum) - made.gap


def test_a_limit_of_nothing_gives_nothing() -> None:
    found, _ = small_knapsack()
    made = solve(found, np.array([-1.0]), EXACT)
    assert made.choices == (None, None, None)


def test_a_limit_without_an_end_does_not_bind() -> None:
    found, _ = small_knapsack()
    assert solve(found, np.array([np.inf]), EXACT).choices == (0, 0, 0)


def test_the_present_allocations_stay_where_others_are_worth_no_more() -> None:
    bid = Bid(np.array([1.0, 2.0]), np.array([[1.0, 2.0]]), 0.0)
    for held in ((0, 1), (1, 0)):
        bids = [replace(bid, held=which) for which in held]
        for effort in (EXACT, RELAXED):
            assert solve(bids, np.array([3.0]), effort).choices == held


def test_many_columns_of_few_jobs() -> None:
    generator = np.random.default_rng(0)
    uses = generator.integers(1, 60, (1, 700)).astype(float)
    bid = Bid(generator.random(700), uses, 0.0)
    made = solve([bid, replace(bid)], np.array([40.0]), EXACT)
    assert made.gap == 0.0
    assert total([bid, bid], made.choices) == pytest.approx(best_of_two(bid, 40.0))


def best_of_two(bid: Bid, most: float) -> float:
    value = [max(bid.value[bid.uses[0] <= u], default=0.0) for u in range(int(most) + 1)]
    return max(value[u] + value[int(most) - u] for u in range(int(most) + 1))
