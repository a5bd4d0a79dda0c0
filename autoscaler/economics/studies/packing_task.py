"""A rung made ready to be packed at many barriers: what does not depend on the barrier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoscaler.economics.studies.courses import (
    NEVER,
    Courses,
    running_courses,
    waiting_courses,
    work_seconds,
)
from autoscaler.economics.studies.rung import Rung, StudySupply
from autoscaler.economics.supply import IntArray
from autoscaler.goodput.throughput import FloatArray


class Option(NamedTuple):
    """A size that a trial could go to: the mean cost, the size, whether on what is free, when."""

    usd: float
    size: int
    is_ready: bool
    end_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class PackingTask:
    """A rung made ready to be packed at many barriers.

    `running` and `waiting` are places in the rung, the rows of the courses: of those that train,
    growing by instances that boot or that are ready, and of those that wait, longest first.
    `alone` are the seconds of each trial's work on each size without any change, (K, N, A).
    """

    rung: Rung
    supply: StudySupply
    running: IntArray
    waiting: IntArray
    booting: Courses
    ready: Courses
    idle: Courses
    alone: FloatArray
    resizes: tuple[tuple[Option, ...], ...]
    openings: tuple[tuple[Option, ...], ...]

    @property
    def draws(self) -> int:
        """K."""
        return int(self.rung.trials[0].goodput.shape[0])


def packing_task(rung: Rung, supply: StudySupply, caution: float) -> PackingTask:
    """All that packings at different barriers have in common.

    Raises:
        ValueError: a trial's goodput is not of as many draws and sizes as that of the others.
    """
    shape = rung.trials[0].goodput.shape[0], len(supply.sizes)
    for trial in rung.trials:
        if trial.goodput.shape != shape:
            raise ValueError(f"trial {trial.id}: goodput of {trial.goodput.shape}, not {shape}")
    holds = [index for index, trial in enumerate(rung.trials) if trial.held is not None]
    waits = [index for index, trial in enumerate(rung.trials) if trial.held is None]
    running = tuple(rung.trials[index] for index in holds)
    idle = waiting_courses(tuple(rung.trials[index] for index in waits), supply, caution)
    for row, index in enumerate(waits):
        if not rung.trials[index].is_measured:
            # Growing once its speed is known costs a boot; growing before is a bet on a guess.
            dearer = np.arange(len(supply.sizes)) != idle.usd[row].argmin()
            idle.cautious[row, dearer] = NEVER
    order = np.argsort(-idle.cautious.min(axis=1), kind="stable")
    idle = Courses(idle.seconds[:, order], idle.mean[order], idle.cautious[order], idle.usd[order])
    booting = running_courses(running, supply, caution)
    ready = running_courses(running, supply, caution, _paid(rung, supply))
    return PackingTask(
        rung,
        supply,
        np.array(holds, dtype=np.int64),
        np.array(waits, dtype=np.int64)[order],
        booting,
        ready,
        idle,
        np.stack([work_seconds(trial, supply) for trial in rung.trials], axis=1),
        tuple(_options(booting, ready, row) for row in range(len(holds))),
        tuple(_openings(idle, supply, row) for row in range(len(waits))),
    )


def _paid(rung: Rung, supply: StudySupply) -> FloatArray:
    """For how long free instances of each size's offer are paid for at the least, (A,)."""
    least = {one.offer: float("inf") for one in rung.freed}
    for one in rung.freed:
        least[one.offer] = min(least[one.offer], one.paid_seconds)
    return np.array([least.get(size.offer, 0.0) for size in supply.sizes])


def _options(booting: Courses, ready: Courses, row: int) -> tuple[Option, ...]:
    """What a trial that trains could go on with, the cheapest first."""
    return tuple(
        sorted(
            Option(usd, size, is_ready, end)
            for is_ready, courses in ((False, booting), (True, ready))
            for size, (usd, end) in enumerate(
                zip(courses.usd[row].tolist(), courses.cautious[row].tolist(), strict=True)
            )
        )
    )


def _openings(idle: Courses, supply: StudySupply, row: int) -> tuple[Option, ...]:
    """What a trial that waits could begin on that is new, the cheapest first."""
    starts = supply.boot_seconds + supply.switching.start_seconds
    billed = np.maximum(starts + idle.mean[row], supply.minimum_billed_seconds)
    usd = (billed * supply.usd_per_second).tolist()
    ends = (starts + idle.cautious[row]).tolist()
    return tuple(
        sorted(Option(usd[size], size, False, ends[size]) for size in range(len(supply.sizes)))
    )
