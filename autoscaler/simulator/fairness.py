"""Finish-time fairness: completion time relative to that on an equal share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Rho above which a job counts as treated unfairly: 5 % allow for noise (Shockwave, NSDI'23).
UNFAIR_RHO = 1.05


def mean_active_jobs(
    submitted_seconds: Sequence[float], finished_seconds: Sequence[float]
) -> NDArray[np.float64]:
    """Return the mean number of jobs present during each of N jobs, itself included, (N,)."""
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
    """Return rho, completion time over the time alone on an equal share; up to 1 is fair.

    ``JCT / (exclusive * max(1, jobs / devices))``. With the jobs of the whole workload it is the
    static ratio of Shockwave (NSDI'23). With the mean number of present jobs it is that of Themis
    (NSDI'20). None if the exclusive time is unknown.

    Args:
        completion_seconds: JCT, from submission to end.
        exclusive_seconds: time of the job alone on its request; None: unknown.
        jobs: number of jobs that share the devices.
        devices: devices of the pool; None: devices are bought and not shared.
    """
    if exclusive_seconds is None or exclusive_seconds <= 0:
        return None
    contention = 1.0 if devices is None else max(1.0, jobs / devices)
    return completion_seconds / (exclusive_seconds * contention)


def worst(ratios: Sequence[float | None]) -> float | None:
    """Return the largest known ratio; None if none is known."""
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def share_above(ratios: Sequence[float | None], bound: float) -> float | None:
    """Return the share of known ratios above `bound`; None if none is known."""
    known = [ratio for ratio in ratios if ratio is not None]
    return sum(ratio > bound for ratio in known) / len(known) if known else None
