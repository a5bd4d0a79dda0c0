"""Estimated lifetimes of an offer's instances, and estimated outages of its capacity."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HazardByAge:
    """Hazard rate by age class, of instances or of outages.

    Class k begins at age `ages_seconds[k]` and has the mean rate `per_second[k]`, in ends a
    second. The rate has a gamma distribution about that mean whose shape is `ends[k]`, the
    observed ends.
    """

    ages_seconds: tuple[float, ...]
    per_second: tuple[float, ...]
    ends: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LifetimeEstimate:
    """Lifetimes of one offer's instances, and the outages between periods of capacity.

    `there` is the probability that the offer has capacity now. `out_seconds` is the age of the
    outage if it has none. `usually_there` is the long-run share of time with capacity.
    """

    reclaim: HazardByAge
    outage: HazardByAge
    there: float = 1.0
    out_seconds: float = 0.0
    usually_there: float = 1.0
