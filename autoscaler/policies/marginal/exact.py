"""Allocations of few jobs within shared limits, at the greatest total value: branch and bound."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import scipy  # its parts are imported when first used, which takes half a second

from autoscaler.domain.errors import SolverError
from autoscaler.economics.supply.supply import IntArray, fits
from autoscaler.goodput.throughput import FloatArray

# HiGHS ignores differences below 1e-6; values are scaled to this largest value.
_SCALE = 1e3


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """Bounds on the search: exact up to `exact_jobs` jobs, for at most `seconds`."""

    exact_jobs: int = 24
    seconds: float = 2.0


def solve_exactly(
    job: IntArray, value: FloatArray, uses: FloatArray, room: FloatArray, seconds: float
) -> tuple[IntArray, float]:
    """Return the columns of the greatest value, and an upper bound on their value.

    Args:
        job: index of the job of each column, at most one of which is taken, (D,).
        value: value of each column, (D,); above 0.
        uses: use of each limit, (R, D).
        room: capacity of each limit, (R,).
        seconds: time limit of the search.

    Raises:
        SolverError: branch and bound finds no solution, or one that exceeds a limit.
    """
    scale = _SCALE / max(float(value.max()), sys.float_info.min * _SCALE)
    jobs, row = np.unique(job, return_inverse=True)
    one_each = scipy.sparse.csr_array((np.ones(len(row)), (row, np.arange(len(row)))))
    matrix = scipy.sparse.vstack([one_each, scipy.sparse.csr_array(uses)], format="csr")
    most = np.concatenate([np.ones(len(jobs)), room])
    result = scipy.optimize.milp(
        -scale * value,
        integrality=np.ones(len(value), dtype=np.int64),
        bounds=scipy.optimize.Bounds(0.0, 1.0),
        constraints=scipy.optimize.LinearConstraint(matrix, -np.inf, most),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if result.x is None:
        raise SolverError(f"branch and bound found no solution: {result.message}")
    chosen = np.flatnonzero(result.x > 0.5)
    if not fits(uses[:, chosen].sum(axis=1), room).all():
        raise SolverError("branch and bound exceeded a limit")
    return chosen, -float(result.mip_dual_bound) / scale
