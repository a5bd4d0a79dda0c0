"""Finish-time fairness: how much longer jobs took than with a share of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# A job counts as treated unfairly above this: 5 % are left for noise (Shockwave, NSDI'23).
UNFAIR_RHO = 1.05


def mean_active_jobs(
    submitted_seconds: Sequence[float], finished_seconds: Sequence[float]
) -> NDArray[np.float64]:
    """How many jobs there were on average while each of N was, itself among them, (N,)."""
    begin, end = np.asarray(submitted_seconds), np.asarray(finished_seconds)
    together = np.minimum(end[:, None], end) - np.maximum(begin[:, None], begin)
    active = np.maximum(together, 0.0).sum(axis=1)
    mean: NDArray[np.float64] = active / np.maximum(end - begin, 1e-9)
    return np.maximum(mean, 1.0)


def fairness_ratio(
    completion_seconds: float,
    exclusive_seconds: float | None,
    jobs: float,
    devices: int | None,
) -> float | None:
    """Rho: completion time over that of the job alone on an equal share; 1 or less is fair.

    ``JCT / (exclusive * max(1, jobs / devices))``: with the number of jobs in the whole workload
    it is the static one of Shockwave (NSDI'23), with the mean number of them while the job was
    there that of Themis (NSDI'20). `devices` None: they can be bought, and nobody shares them.
    """
    if exclusive_seconds is None or exclusive_seconds <= 0:
        return None
    contention = 1.0 if devices is None else max(1.0, jobs / devices)
    return completion_seconds / (exclusive_seconds * contention)


def worst(ratios: Sequence[float | None]) -> float | None:
    """The largest that is known."""
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def share_above(ratios: Sequence[float | None], bound: float) -> float | None:
    """Which share of those known is above `bound`."""
    known = [ratio for ratio in ratios if ratio is not None]
    return sum(ratio > bound for ratio in known) / len(known) if known else None
