"""Trials that nobody has run yet: their paces are drawn, and so is who is better than whom.

What a study costs depends on how fast its trials are and on how many go on, not on which.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from autoscaler.simulator.curves import Curve

# 9 in 10 paces are within a factor of 2 of the median, if nothing better is known.
ASSUMED_FACTOR: Final = 2.0
_NINE_IN_TEN_DEVIATIONS = 1.645
_MOST_REPORTS = 20


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a step takes on one device: those of earlier trials, or an assumed median."""

    step_seconds: float
    measured: tuple[float, ...] = ()

    def draw(self, count: int, source: np.random.Generator) -> list[float]:
        """Seconds a step of so many trials."""
        if self.measured:
            return [float(each) for each in source.choice(self.measured, count)]
        deviation = math.log(ASSUMED_FACTOR) / _NINE_IN_TEN_DEVIATIONS
        factors = np.exp(source.normal(0.0, deviation, count))
        return [self.step_seconds * float(factor) for factor in factors]


def drawn_curves(
    count: int, steps: int, rungs: Collection[float], pace: Pace, seed: int
) -> tuple[Curve, ...]:
    """Trials of so many steps, that report at each rung and a few times in between."""
    source = np.random.default_rng(seed)
    epochs = _reports(steps, rungs)
    lengths = [epochs[0], *(end - start for start, end in pairwise(epochs))]
    ranks = source.permutation(count).tolist()
    paces = pace.draw(count, source)
    return tuple(
        Curve(
            trial=str(number),
            parameters={},
            epochs=epochs,
            values=(float(rank),) * len(epochs),
            end_seconds=tuple(accumulate(step_seconds * length for length in lengths)),
        )
        for number, (rank, step_seconds) in enumerate(zip(ranks, paces, strict=True))
    )


def _reports(steps: int, rungs: Collection[float]) -> tuple[float, ...]:
    every = max(steps // _MOST_REPORTS, 1)
    between = (float(step) for step in range(every, steps, every))
    return tuple(sorted({*between, *(rung for rung in rungs if rung < steps), float(steps)}))


def quantiles(values: Sequence[float]) -> tuple[float, float, float]:
    """What 5 %, half and 95 % of the values are at most."""
    low, median, high = np.quantile(np.array(values, dtype=float), (0.05, 0.5, 0.95)).tolist()
    return low, median, high
