from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.policies.marginal.exact import SolverLimits
from autoscaler.policies.marginal.limit_sharing import Columns, allocate, useful

RELAXED = SolverLimits(exact_jobs=0)


def columns(seed: int, jobs: int, limits: int, scarcity: float) -> Columns:
    """Return random columns of 6 sizes of each job."""
    generator = np.random.default_rng(seed)
    size = generator.integers(1, 32, (jobs, 6)).astype(float)
    value = generator.lognormal(0.0, 1.0, (jobs, 1)) * size ** generator.uniform(0.3, 1.0)
    counts = generator.random((limits, jobs, 6)) < np.linspace(1.0, 0.5, limits)[:, None, None]
    uses = counts * size
    room = np.maximum(uses.max(axis=2).sum(axis=1) * scarcity, 1.0)
    job, flat = np.repeat(np.arange(jobs), 6), uses.reshape(limits, -1)
    kept = useful(value.ravel(), flat, room)
    none_held = np.empty(0, dtype=np.int64)
    return Columns(job[kept], value.ravel()[kept], flat[:, kept], room, none_held)


def relaxation(every: Columns) -> Any:
    """Return the linear relaxation, solved as one program."""
    jobs, row = np.unique(every.job, return_inverse=True)
    one_each = scipy.sparse.csr_array((np.ones(len(row)), (row, np.arange(len(row)))))
    return scipy.optimize.linprog(
        -every.value,
        A_ub=scipy.sparse.vstack([one_each, scipy.sparse.csr_array(every.uses)]),
        b_ub=np.concatenate([np.ones(len(jobs)), every.room]),
    )


@given(
    st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 4), st.sampled_from([0.05, 0.3, 2.0])
)
@settings(max_examples=25)
def test_what_is_divided_fits_and_is_within_the_gap_of_the_best(
    seed: int, jobs: int, limits: int, scarcity: float
) -> None:
    every = columns(seed, jobs, limits, scarcity)
    found = allocate(every, RELAXED)
    assert found.trouble is None
    assert len(set(every.job[found.chosen].tolist())) == len(found.chosen)
    assert (every.uses[:, found.chosen].sum(axis=1) <= every.room * (1 + 1e-9)).all()
    exact = allocate(every, SolverLimits(exact_jobs=40, seconds=1.0))
    best = float(every.value[exact.chosen].sum())
    assert float(every.value[found.chosen].sum()) <= best * (1 + 1e-9)
    assert float(every.value[found.chosen].sum()) + found.gap >= best * (1 - 1e-6)
    if not len(every.job):
        assert best == 0.0
        return
    assert best + exact.gap <= float(-relaxation(every).fun) * (1 + 1e-4)


def test_of_many_jobs_the_gap_is_small_and_prices_are_those_of_the_relaxation() -> None:
    every = columns(3, 1000, 3, 0.2)
    found = allocate(every, RELAXED)
    value = float(every.value[found.chosen].sum())
    assert found.gap < 0.002 * value
    shadow_prices = -relaxation(every).ineqlin.marginals[-3:]
    assert found.prices == pytest.approx(shadow_prices, rel=0.05, abs=1e-3)


def test_where_nothing_binds_all_have_their_best_at_no_price() -> None:
    every = columns(1, 50, 2, 2.0)
    found = allocate(every, RELAXED)
    best = [every.value[every.job == job].max() for job in set(every.job.tolist())]
    assert float(every.value[found.chosen].sum()) == pytest.approx(sum(best))
    assert not found.prices.any()
    nothing = np.empty(0, dtype=np.int64)
    empty = allocate(Columns(nothing, np.empty(0), np.empty((2, 0)), every.room, nothing), RELAXED)
    assert (len(empty.chosen), empty.gap) == (0, 0.0)
