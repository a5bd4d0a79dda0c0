"""How long something lasts whose end becomes less likely with age: a spot instance, an outage.

The hazard is constant within each class of age, with a gamma prior each: conjugate, so that what
is learnt is a sum of ends and of time lived. Lifetimes of spot are heavy-tailed; against a
constant hazard, Weibull and Lomax lifetimes this has the best likelihood on published traces
(docs/economics.md, `benchmarks/spot_lifetimes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from autoscaler.domain.lives import Ending

# Where the classes of age begin.
AGES_SECONDS = (0.0, 600.0, 1800.0, 7200.0, 28800.0)
# How the hazard usually falls with age, against its mean over four hours: public traces of V100.
_FALL = (2.7, 1.9, 1.1, 0.67, 0.4)
# The prior of a class counts for so many ends.
_PRIOR_ENDS = 1.0


@dataclass(frozen=True, slots=True)
class Life:
    """A life of `seconds`, which may go on or have been cut short by somebody else.

    `weight` is what it counts for: what was long ago counts for less.
    """

    seconds: float
    has_ended: bool
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Hazard:
    """Ends a second, of each class of `AGES_SECONDS`; all 0 where nothing ever ends.

    Each is the mean of a gamma distribution that counts for so many `ends`.
    """

    per_second: tuple[float, ...]
    ends: tuple[float, ...] = field(default=(_PRIOR_ENDS,) * len(AGES_SECONDS), compare=False)

    @property
    def ending(self) -> Ending:
        """The same for those who draw from it."""
        return Ending(AGES_SECONDS, self.per_second, self.ends)

    def survival(self, age_seconds: float, seconds: float) -> float:
        """How likely what is so old is still there after so many seconds."""
        until = age_seconds + seconds
        classes = zip(self.per_second, _classes(), strict=True)
        return math.exp(-sum(h * _overlap(age_seconds, until, *ages) for h, ages in classes))

    def mean_seconds(self, age_seconds: float, most_seconds: float) -> float:
        """For how long on average it is still there, of the next `most_seconds`."""
        until = age_seconds + most_seconds
        total, alive = 0.0, 1.0
        for hazard, (first, last) in zip(self.per_second, _classes(), strict=True):
            lasts = _overlap(age_seconds, until, first, last)
            alone = -math.expm1(-hazard * lasts) / hazard if hazard > 0 else lasts
            total += alive * min(alone, lasts)  # a hazard of next to nothing has few digits
            alive *= math.exp(-hazard * lasts)
        return total

    def ends_per_second(self, age_seconds: float, most_seconds: float) -> float:
        """Ends in each second that it is there, over the next `most_seconds` (above 0)."""
        ends = 1.0 - self.survival(age_seconds, most_seconds)
        return ends / self.mean_seconds(age_seconds, most_seconds)


def usual_hazard(per_second: float) -> Hazard:
    """One of about that mean, which falls with age as it usually does."""
    return Hazard(tuple(per_second * share for share in _FALL))


def learnt_hazard(lives: Iterable[Life], prior: Hazard, optimism: float = 0.0) -> Hazard:
    """What is to be believed after these lives; a prior of 0 stays 0.

    `optimism` takes so many standard deviations of the posterior off its mean, where a class of
    age was seen rarely: what nobody has tried for long is worth trying (upper confidence bound).
    """
    known = list(lives)
    found, shapes = [], []
    for expected, (first, last) in zip(prior.per_second, _classes(), strict=True):
        lived = sum(life.weight * _overlap(0.0, life.seconds, first, last) for life in known)
        ends = sum(
            life.weight for life in known if life.has_ended and first <= life.seconds < last
        )
        shape = _PRIOR_ENDS + ends
        mean = shape / (_PRIOR_ENDS / expected + lived) if expected > 0 else 0.0
        found.append(mean * max(1.0 - optimism / math.sqrt(shape), 0.0))
        shapes.append(shape)
    return Hazard(tuple(found), tuple(shapes))


def _classes() -> Iterable[tuple[float, float]]:
    return pairwise((*AGES_SECONDS, math.inf))


def _overlap(since: float, until: float, first: float, last: float) -> float:
    """How much of the time between two ages lies between two others."""
    return max(min(until, last) - max(since, first), 0.0)
