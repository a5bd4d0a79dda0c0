"""How long instances of an offer last, and how long it is without capacity, as believed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """How fast something ends, by classes of its age.

    Class k begins at `ages_seconds[k]` and has `per_second[k]` ends a second, known from
    `ends[k]` of them: the shape of a gamma distribution about that mean.
    """

    ages_seconds: tuple[float, ...]
    per_second: tuple[float, ...]
    ends: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Lives:
    """The lives of one offer's instances, and the outages between them.

    `there` is how likely it has capacity now; where it has not, it is out for `out_seconds`
    already. `usually_there` is the share of time in which it has.
    """

    reclaim: Ending
    outage: Ending
    there: float = 1.0
    out_seconds: float = 0.0
    usually_there: float = 1.0
