"""The fluid run against plain loops over jobs and steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.economics.scarcity.fluid import Segments, run_to_completion
from autoscaler.goodput.throughput import FloatArray

PHASES = 32


def some_segments(generator: np.random.Generator, count: int, limits: int) -> Segments:
    """Return steps of jobs, some of which use no limit in some step."""
    steps = count * 4
    uses = generator.uniform(0.1, 2.0, (limits, steps)) * (generator.random((limits, steps)) < 0.7)
    return Segments(
        job=generator.integers(0, count, steps),
        surplus=generator.uniform(0.1, 2.0, steps),
        rate=generator.uniform(0.1, 3.0, steps),
        uses=uses,
        base_rate=np.where(generator.random(count) < 0.2, 0.5, 0.0),
    )


def loop_run(work: FloatArray, segments: Segments, maximum: FloatArray) -> FloatArray:
    left, active = work.tolist(), set(range(len(work)))
    prices = np.zeros((len(work), len(maximum)))
    while active:
        rate, present = loop_fill(segments, active, maximum)
        for job in active:
            prices[job] = present
        seconds = {job: left[job] / rate[job] for job in active if rate[job] > 0}
        if not seconds:
            break
        finishing = min(max(1, len(left) // PHASES), len(seconds))
        step_seconds = sorted(seconds.values())[finishing - 1]
        for job in active:
            left[job] -= rate[job] * step_seconds
        active -= {job for job, one in seconds.items() if one <= step_seconds}
    return prices


def loop_fill(
    segments: Segments, active: set[int], maximum: FloatArray
) -> tuple[list[float], FloatArray]:
    """Return the rate of each job, and the price of each limit, after filling step by step."""
    rate: list[float] = segments.base_rate.tolist()
    room, prices = maximum.copy(), np.zeros(len(maximum))
    full, stopped = set[int](), set(range(len(rate))) - active
    for step, job in enumerate(segments.job.tolist()):
        uses = segments.uses[:, step]
        if job in stopped or any(uses[limit] > 0 for limit in full):
            stopped.add(job)
            continue
        shares = [one / use if use > 0 else np.inf for one, use in zip(room, uses, strict=True)]
        share = min(*shares, 1.0)
        if share < 1.0 - 1e-9:
            limit = int(np.argmin(shares))
            full.add(limit)
            stopped.add(job)
            prices[limit] = segments.surplus[step] / uses[limit]
        rate[job] += share * float(segments.rate[step])
        room = np.maximum(room - share * uses, 0.0)
    return rate, prices


@given(st.integers(0, 10_000), st.integers(1, 80), st.integers(1, 3))
@settings(max_examples=40)
def test_all_steps_at_once_are_filled_as_one_by_one(seed: int, count: int, limits: int) -> None:
    generator = np.random.default_rng(seed)
    segments = some_segments(generator, count, limits)
    work = generator.lognormal(3.0, 2.0, count)
    maximum = generator.uniform(0.1, 2.0, limits) * count
    expected = loop_run(work, segments, maximum)
    assert run_to_completion(work, segments, maximum) == pytest.approx(expected, rel=1e-9)
