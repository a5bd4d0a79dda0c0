"""Jobs of the fluid run, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.economics.scarcity.fluid import FluidJobs
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True)
class OneJob:
    """One job with C allocations; fields are as in `FluidJobs`."""

    value_of_time: float
    work: float
    usd_per_second: FloatArray
    rate: FloatArray
    uses: FloatArray
    held_uses: FloatArray | None = None
    keeping_usd_per_second: float = 0.0
    starting_share: float = 0.0


def together(jobs: Sequence[OneJob]) -> FluidJobs:
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


def some_jobs(seed: int, count: int, limits: int) -> list[OneJob]:
    """Return jobs of all shapes of goodput, some of which hold something."""
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
        drawn_jobs.append(OneJob(value, work, price, rate, uses, held, keeping, starting))
    return drawn_jobs
