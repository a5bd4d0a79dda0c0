"""Lifetimes whose hazard falls with age: of spot instances and of outages.

The hazard is constant within each age class, with a gamma prior. The prior is conjugate, so the
posterior needs only the number of ends and the time lived. Spot lifetimes are heavy-tailed. On
each of eight published traces this model has a higher likelihood than a constant hazard, on seven
than Weibull lifetimes, and on four than Lomax lifetimes (`benchmarks/spot_lifetimes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from autoscaler.domain.lives import HazardByAge

# Lower bounds of the age classes.
AGES_SECONDS = (0.0, 600.0, 1800.0, 7200.0, 28800.0)
# Hazard of each age class relative to its mean over four hours, from public traces of V100s.
_HAZARD_SHARES = (2.7, 1.9, 1.1, 0.67, 0.4)
# Weight of the prior of each age class, as a number of ends.
_PRIOR_ENDS = 1.0


@dataclass(frozen=True, slots=True)
class ObservedLifetime:
    """An observed lifetime of `seconds`; without `has_ended` the observation is censored.

    `weight` is at most 1 and falls with the age of the observation.
    """

    seconds: float
    has_ended: bool
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Hazard:
    """Ends per second in each age class of `AGES_SECONDS`; all 0 where nothing ever ends.

    Each value is the mean of a gamma distribution with the weight of `ends` observed ends.
    """

    per_second: tuple[float, ...]
    ends: tuple[float, ...] = field(default=(_PRIOR_ENDS,) * len(AGES_SECONDS), compare=False)

    @property
    def ending(self) -> HazardByAge:
        """The same hazard as the domain's `HazardByAge`, for drawing lifetimes."""
        return HazardByAge(AGES_SECONDS, self.per_second, self.ends)

    def survival(self, age_seconds: float, seconds: float) -> float:
        """Return the probability that a life of `age_seconds` lasts `seconds` more."""
        until = age_seconds + seconds
        classes = zip(self.per_second, _age_classes(), strict=True)
        return math.exp(
            -sum(hazard * _overlap(age_seconds, until, *ages) for hazard, ages in classes)
        )

    def mean_seconds(self, age_seconds: float, most_seconds: float) -> float:
        """Return the expected seconds alive within the next `most_seconds`."""
        until = age_seconds + most_seconds
        total, alive = 0.0, 1.0
        for hazard, (first, last) in zip(self.per_second, _age_classes(), strict=True):
            class_seconds = _overlap(age_seconds, until, first, last)
            expected_seconds = (
                -math.expm1(-hazard * class_seconds) / hazard if hazard > 0 else class_seconds
            )
            total += alive * min(
                expected_seconds, class_seconds
            )  # limits rounding errors of tiny hazards
            alive *= math.exp(-hazard * class_seconds)
        return total

    def ends_per_second(self, age_seconds: float, most_seconds: float) -> float:
        """Return the expected ends per second alive, over the next `most_seconds` (above 0)."""
        ends = 1.0 - self.survival(age_seconds, most_seconds)
        return ends / self.mean_seconds(age_seconds, most_seconds)


def prior_hazard(per_second: float) -> Hazard:
    """Return a hazard of about that mean over four hours, with the usual fall with age."""
    return Hazard(tuple(per_second * share for share in _HAZARD_SHARES))


def posterior_hazard(
    lives: Iterable[ObservedLifetime], prior: Hazard, optimism: float = 0.0
) -> Hazard:
    """Return the posterior hazard after the observed lives; a prior of 0 stays 0.

    `optimism` subtracts that many standard deviations from the mean of each age class, relative to
    the mean. This favours rarely observed places (upper confidence bound).
    """
    observed = list(lives)
    means, shapes = [], []
    for prior_mean, (first, last) in zip(prior.per_second, _age_classes(), strict=True):
        lived_seconds = sum(
            life.weight * _overlap(0.0, life.seconds, first, last) for life in observed
        )
        ends = sum(
            life.weight for life in observed if life.has_ended and first <= life.seconds < last
        )
        shape = _PRIOR_ENDS + ends
        mean = shape / (_PRIOR_ENDS / prior_mean + lived_seconds) if prior_mean > 0 else 0.0
        means.append(mean * max(1.0 - optimism / math.sqrt(shape), 0.0))
        shapes.append(shape)
    return Hazard(tuple(means), tuple(shapes))


def _age_classes() -> Iterable[tuple[float, float]]:
    return pairwise((*AGES_SECONDS, math.inf))


def _overlap(since: float, until: float, first: float, last: float) -> float:
    """Return the length of the intersection of two intervals of age, in seconds."""
    return max(min(until, last) - max(since, first), 0.0)
