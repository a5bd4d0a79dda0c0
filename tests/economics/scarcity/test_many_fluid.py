from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.economics.scarcity.fluid import FluidJob, finish_prices
from autoscaler.economics.scarcity.many_fluid import FluidJobs, fluid_prices


def some_jobs(seed: int, count: int, limits: int) -> list[FluidJob]:
    generator = np.random.default_rng(seed)
    drawn_jobs = []
    for _ in range(count):
        size = np.arange(1.0, generator.integers(2, 12))
        rate = size ** generator.uniform(0.3, 1.0) if generator.random() < 0.7 else 3.0 * size
        uses = np.stack([size * (generator.random() < 0.8) for _ in range(limits)])
        price = generator.uniform(0.0, 0.5) * size
        work, value = generator.lognormal(4.0, 2.0), generator.uniform(0.1, 5.0)
        held = uses[:, generator.integers(len(size))] if generator.random() < 0.5 else None
        keeping = 0.0 if held is None else generator.uniform(0.0, 2.0) * value
        starting = generator.choice([0.0, 0.5, 1.0])
        drawn_jobs.append(FluidJob(value, work, price, rate, uses, held, keeping, starting))
    return drawn_jobs


def together(jobs: list[FluidJob]) -> FluidJobs:
    return FluidJobs(
        value_of_time=np.array([job.value_of_time for job in jobs]),
        work=np.array([job.work for job in jobs]),
        job=np.repeat(np.arange(len(jobs)), [len(job.rate) for job in jobs]),
        usd_per_second=np.concatenate([job.usd_per_second for job in jobs]),
        rate=np.concatenate([job.rate for job in jobs]),
        uses=np.concatenate([job.uses for job in jobs], axis=1),
        held_uses=np.stack(
            [np.zeros(len(job.uses)) if job.held_uses is None else job.held_uses for job in jobs],
            axis=1,
        ),
        keeping_usd_per_second=np.array([job.keeping_usd_per_second for job in jobs]),
        starting_share=np.array([job.starting_share for job in jobs]),
    )


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 3), st.floats(0.05, 2.0))
@settings(max_examples=30)
def test_many_at_once_finish_at_the_prices_of_each(
    seed: int, count: int, limits: int, share: float
) -> None:
    jobs = some_jobs(seed, count, limits)
    maximum = np.linspace(1.0, 0.5, limits) * share * 4 * count
    expected = finish_prices(jobs, maximum)
    assert fluid_prices(together(jobs), maximum) == pytest.approx(expected, rel=1e-6, abs=1e-9)
