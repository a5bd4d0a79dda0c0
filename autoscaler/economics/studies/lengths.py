"""How far the trials of a study go before their pruner ends them, from those that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.goodput.throughput import FloatArray

_NOTHING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class TrialLengths:
    """Lengths that a trial may have, rising, (L,), and how likely each is, (L,)."""

    work: FloatArray
    chance: FloatArray

    def left(self, progress: float) -> tuple[float, float]:
        """Mean and standard deviation of the work that one which has come so far has left."""
        beyond = self.work > progress * (1.0 + _NOTHING)
        if not beyond.any():
            return 0.0, 0.0
        left, chance = self.work[beyond] - progress, self.chance[beyond]
        chance = chance / chance.sum()
        mean = float(left @ chance)
        return mean, float(np.sqrt(np.square(left - mean) @ chance))


def trial_lengths(
    ended: Sequence[float], under_way: Sequence[float], full_work: float
) -> TrialLengths:
    """The product-limit estimate of Kaplan and Meier (1958), with one trial more that goes on.

    That one goes all the way: before anything has ended, all are expected to.

    Args:
        ended: how far those came that have ended.
        under_way: how far those have come that have not.
        full_work: what nobody goes beyond.
    """
    ends = np.minimum(np.array(ended, dtype=np.float64), full_work)
    reached = np.concatenate([ends, np.array(under_way, dtype=np.float64)])
    survival, lengths, chances = 1.0, [], []
    for length in np.unique(ends[ends < full_work]).tolist():
        at_risk = 1 + int((reached >= length).sum())
        dies = survival * int((ends == length).sum()) / at_risk
        lengths.append(length)
        chances.append(dies)
        survival -= dies
    return TrialLengths(np.array([*lengths, full_work]), np.array([*chances, survival]))
