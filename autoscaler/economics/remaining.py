"""How much is left to do of a job, and over how much of it a decision counts."""

from __future__ import annotations

import math

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.candidates import Candidates
from autoscaler.economics.supply import Supply
from autoscaler.goodput.throughput import FloatArray

# A job of unknown length has an hour to go, or as long again as it has had.
UNKNOWN_REMAINING_SECONDS = 3600.0


def remaining_work(job: JobSnapshot, supply: Supply, candidates: Candidates) -> float:
    """Useful examples left; where nobody knows, those of an hour or of its age, the longer."""
    if job.remaining_examples is not None and knows_the_end(job):
        return max(job.remaining_examples, 0.0)
    age_seconds = supply.as_of_seconds(job) - job.submitted_seconds
    return _reference_rate(candidates) * max(UNKNOWN_REMAINING_SECONDS, age_seconds)


def work_ahead(job: JobSnapshot, remaining: float, candidates: Candidates) -> float:
    """Useful examples over which a decision counts: no more than until it is usually undone."""
    if job.switching.dwell_seconds is None:
        return remaining
    return min(remaining, _reference_rate(candidates) * job.switching.dwell_seconds)


def knows_the_end(job: JobSnapshot) -> bool:
    """Whether it is known how much remains to be done."""
    return job.remaining_examples is not None and math.isfinite(job.remaining_examples)


def unknown_work(candidates: Candidates) -> FloatArray:
    """Useful examples of a job of which nothing is known, (K, 1): an hour's in each draw.

    Fast or slow, it is as long: or what is bought would go by the draws in which it takes days.
    """
    cheapest = int(np.argmin(candidates.usd_per_second))
    return UNKNOWN_REMAINING_SECONDS / candidates.seconds_per_example[:, [cheapest]]


def _reference_rate(candidates: Candidates) -> float:
    """Useful examples a second of what is held, or else of the cheapest; 0 without candidates."""
    if not len(candidates):
        return 0.0
    cheapest = int(np.argmin(candidates.usd_per_second))
    return float(candidates.rate[cheapest if candidates.held is None else candidates.held])
