from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from autoscaler.policies.marginal.relaxation import best_mixture

_COLUMN = st.tuples(st.integers(0, 4), st.floats(0.01, 10.0), st.integers(0, 6))


@given(st.lists(_COLUMN, min_size=1, max_size=20), st.integers(0, 15))
@settings(max_examples=60)
def test_it_is_worth_what_a_solver_finds(columns: list[tuple[int, float, int]], room: int) -> None:
    job, value, use = (np.array(column) for column in zip(*columns, strict=True))
    found = best_mixture(job, value, use.astype(np.float64), float(room))
    rows = (np.arange(5)[:, None] == job).astype(np.float64)
    solved = linprog(-value, A_ub=[*rows, use], b_ub=[*np.ones(5), room], bounds=(0.0, 1.0))
    assert found.value == pytest.approx(-solved.fun, rel=1e-6)
    assert (rows @ found.share <= 1.0 + 1e-9).all()
    assert use @ found.share <= room + 1e-6
    assert (found.share >= 0.0).all()


@given(st.lists(_COLUMN, min_size=1, max_size=20), st.integers(0, 15))
@settings(max_examples=60)
def test_the_price_is_what_one_more_unit_is_worth_at_most(
    columns: list[tuple[int, float, int]], room: int
) -> None:
    job, value, use = (np.array(column) for column in zip(*columns, strict=True))
    found, more = (best_mixture(job, value, use.astype(float), room + one) for one in (0.0, 1.0))
    assert found.price >= 0.0
    assert more.value <= found.value + found.price + 1e-9


def test_what_there_is_room_for_has_no_price() -> None:
    found = best_mixture(np.array([0, 1]), np.array([1.0, 2.0]), np.array([1.0, 1.0]), 2.0)
    assert (found.share.tolist(), found.price) == ([1.0, 1.0], 0.0)


def test_a_unit_more_of_a_full_limit_is_worth_the_next_in_line() -> None:
    found = best_mixture(np.array([0, 1]), np.array([3.0, 2.0]), np.array([1.0, 1.0]), 1.0)
    assert (found.share.tolist(), found.price) == ([1.0, 0.0], 2.0)
