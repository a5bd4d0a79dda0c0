"""How long spot instances live until they are reclaimed, as distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from numpy.random import Generator


class Lifetimes(Protocol):
    """A distribution of lifetimes."""

    def draw_seconds(self, chance: Generator) -> float:
        """One lifetime, from launch to end."""
        ...


@dataclass(frozen=True, slots=True)
class ExponentialLifetimes:
    """Reclaims come at a constant hazard, whatever the age."""

    reclaims_per_hour: float

    def __post_init__(self) -> None:
        if not 0 < self.reclaims_per_hour < math.inf:
            raise ValueError(f"reclaims_per_hour={self.reclaims_per_hour}: must be positive")

    def draw_seconds(self, chance: Generator) -> float:
        """One lifetime, from launch to end."""
        return float(chance.exponential(3600.0 / self.reclaims_per_hour))


@dataclass(frozen=True, slots=True)
class LognormalLifetimes:
    """A heavy tail: past its mode, the hazard falls with age.

    The mean of a lognormal is ``median * exp(sigma^2 / 2)``, so that the two figures fix it.
    """

    median_seconds: float
    mean_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.median_seconds < self.mean_seconds < math.inf:
            raise ValueError(f"the mean is above the median, and both above 0: {self}")

    def draw_seconds(self, chance: Generator) -> float:
        """One lifetime, from launch to end."""
        sigma = math.sqrt(2.0 * math.log(self.mean_seconds / self.median_seconds))
        return float(chance.lognormal(math.log(self.median_seconds), sigma))
