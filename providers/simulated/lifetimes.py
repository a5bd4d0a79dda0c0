"""Distributions of spot instances' lifetimes until their reclaim."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from numpy.random import Generator


class Lifetimes(Protocol):
    """Distribution of lifetimes."""

    def draw_seconds(self, chance: Generator) -> float:
        """Return a random lifetime in seconds, from launch to end."""
        ...


@dataclass(frozen=True, slots=True)
class ExponentialLifetimes:
    """Lifetimes with a constant reclaim rate at every age."""

    reclaims_per_hour: float

    def __post_init__(self) -> None:
        if not 0 < self.reclaims_per_hour < math.inf:
            raise ValueError(f"reclaims_per_hour={self.reclaims_per_hour}: must be positive")

    def draw_seconds(self, chance: Generator) -> float:
        """Return a random lifetime in seconds, from launch to end."""
        return float(chance.exponential(3600.0 / self.reclaims_per_hour))


@dataclass(frozen=True, slots=True)
class LognormalLifetimes:
    """Heavy-tailed lifetimes: past the mode of the hazard, the hazard falls with age.

    The median and the mean fix a lognormal distribution, as its mean is ``median * exp(sigma^2 /
    2)``.
    """

    median_seconds: float
    mean_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.median_seconds < self.mean_seconds < math.inf:
            raise ValueError(f"the mean must be above the median, and both above 0: {self}")

    def draw_seconds(self, chance: Generator) -> float:
        """Return a random lifetime in seconds, from launch to end."""
        sigma = math.sqrt(2.0 * math.log(self.mean_seconds / self.median_seconds))
        return float(chance.lognormal(math.log(self.median_seconds), sigma))
