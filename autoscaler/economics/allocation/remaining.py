"""Remaining work of a job, and the work over which a decision counts."""

from __future__ import annotations

import math

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.allocation.candidates import Candidates
from autoscaler.economics.supply.supply import Supply
from autoscaler.goodput.throughput import FloatArray

# Assumed remaining time of a job of unknown length; its age, if that is longer.
UNKNOWN_REMAINING_SECONDS = 3600.0


def remaining_work(job: JobSnapshot, supply: Supply, candidates: Candidates) -> float:
    """Return the useful examples left, or a guess if the end is unknown.

    The guess is one hour of work at the reference rate, or the job's age if longer.
    """
    if job.remaining_examples is not None and knows_the_end(job):
        return max(job.remaining_examples, 0.0)
    age_seconds = supply.as_of_seconds(job) - job.submitted_seconds
    return _reference_rate(candidates) * max(UNKNOWN_REMAINING_SECONDS, age_seconds)


def work_ahead(job: JobSnapshot, remaining: float, candidates: Candidates) -> float:
    """Return the useful examples over which a decision counts.

    They end with the job, or when its changes are usually reversed (`dwell_seconds`).
    """
    if job.switching.dwell_seconds is None:
        return remaining
    return min(remaining, _reference_rate(candidates) * job.switching.dwell_seconds)


def knows_the_end(job: JobSnapshot) -> bool:
    """Return whether the remaining work of the job is known."""
    return job.remaining_examples is not None and math.isfinite(job.remaining_examples)


def unknown_work(candidates: Candidates) -> FloatArray:
    """Return one hour's useful examples in each draw, for a job of unknown length, (K, 1).

    Each draw gets the same duration. Equal work would let slow draws dominate the choice.
    """
    cheapest = int(np.argmin(candidates.usd_per_second))
    return UNKNOWN_REMAINING_SECONDS / candidates.seconds_per_example[:, [cheapest]]


def _reference_rate(candidates: Candidates) -> float:
    """Return useful examples a second of the held, else the cheapest candidate; 0 if none."""
    if not len(candidates):
        return 0.0
    cheapest = int(np.argmin(candidates.usd_per_second))
    return float(candidates.rate[cheapest if candidates.held is None else candidates.held])
