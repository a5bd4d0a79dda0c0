from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.policies.marginal.decomposition import Columns, allocate_by_prices, useful
from autoscaler.policies.marginal.knapsack import Bid, SolverLimits, solve_knapsack


def columns(seed: int, jobs: int, limits: int, scarcity: float) -> tuple[list[Bid], Columns]:
    """Random bids of 6 sizes, as bids and as columns."""
    generator = np.random.default_rng(seed)
    size = generator.integers(1, 32, (jobs, 6)).astype(float)
    value = generator.lognormal(0.0, 1.0, (jobs, 1)) * size ** generator.uniform(0.3, 1.0)
    counts = generator.random((limits, jobs, 6)) < np.linspace(1.0, 0.5, limits)[:, None, None]
    uses = counts * size
    room = np.maximum(uses.max(axis=2).sum(axis=1) * scarcity, 1.0)
    bids = [Bid(value[i], uses[:, i], 0.0) for i in range(jobs)]
    job, flat = np.repeat(np.arange(jobs), 6), uses.reshape(limits, -1)
    kept = useful(value.ravel(), flat, room)
    return bids, Columns(job[kept], value.ravel()[kept], flat[:, kept], room)


@given(
    st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 4), st.sampled_from([0.05, 0.3, 2.0])
)
@settings(max_examples=25)
def test_what_is_divided_fits_and_is_within_the_gap_of_the_best(
    seed: int, jobs: int, limits: int, scarcity: float
) -> None:
    bids, every = columns(seed, jobs, limits, scarcity)
    found = allocate_by_prices(every)
    assert found.trouble is None
    assert len(set(every.job[found.chosen].tolist())) == len(found.chosen)
    assert (every.uses[:, found.chosen].sum(axis=1) <= every.room * (1 + 1e-9)).all()
    exact = solve_knapsack(bids, every.room, SolverLimits(exact_jobs=40, seconds=1.0))
    best = sum(bids[i].value[c] for i, c in enumerate(exact.choices) if c is not None)
    assert float(every.value[found.chosen].sum()) + found.gap >= best * (1 - 1e-6)


def test_of_many_jobs_the_gap_is_small_and_prices_are_those_of_the_relaxation() -> None:
    bids, every = columns(3, 1000, 3, 0.2)
    found = allocate_by_prices(every)
    value = float(every.value[found.chosen].sum())
    assert found.gap < 0.002 * value
    relaxed = solve_knapsack(bids, every.room, SolverLimits(exact_jobs=0))
    assert found.prices == pytest.approx(relaxed.shadow_prices, rel=0.05, abs=1e-3)


def test_where_nothing_binds_all_have_their_best_at_no_price() -> None:
    _, every = columns(1, 50, 2, 2.0)
    found = allocate_by_prices(every)
    best = [every.value[every.job == job].max() for job in set(every.job.tolist())]
    assert float(every.value[found.chosen].sum()) == pytest.approx(sum(best))
    assert not found.prices.any()
    nothing = np.empty(0, dtype=np.int64)
    empty = allocate_by_prices(Columns(nothing, np.empty(0), np.empty((2, 0)), every.room))
    assert (len(empty.chosen), empty.gap) == (0, 0.0)
