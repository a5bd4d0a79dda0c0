"""Several policies on the same work, over several seeds: means, and how sure they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from autoscaler.simulator.results import Result, Totals

_CONFIDENCE = 0.95
# Of the mean: what is left of a sum's rounding.
_NO_SPREAD = 1e-12


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds; of its 95 % confidence interval half the width, by Student's t.

    `half_width` is None where one seed says nothing of the others.
    """

    mean: float
    half_width: float | None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one policy, and as a multiple of the first policy's at the same seed.

    `ratio` is None where the first has none, or nothing.
    """

    value: Estimate
    ratio: Estimate | None


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy: its figures by their names in `Totals`, and all totals, by seed."""

    policy: str
    figures: Mapping[str, Figure]
    totals: tuple[Totals, ...]


FIGURES = (
    "avg_jct_s",
    "p99_jct_s",
    "makespan_s",
    "cost_usd",
    "gpu_hours",
    "gpu_utilisation",
    "worst_ftf_rho",
    "unfair_share",
    "restarts",
    "decision_ms_p50",
)


def compare(results: Mapping[str, Sequence[Result]]) -> tuple[Standing, ...]:
    """How the policies stand to the first of them; each has a result for each seed, in order."""
    totals = {policy: tuple(each.totals for each in runs) for policy, runs in results.items()}
    first = next(iter(totals.values()))
    return tuple(Standing(policy, _figures(own, first), own) for policy, own in totals.items())


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of values, at least one, that are drawn independently."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Estimate(mean, None)
    if max(values) - min(values) <= _NO_SPREAD * abs(mean):
        return Estimate(mean, 0.0)
    quantile = float(stdtrit(count - 1, (1 + _CONFIDENCE) / 2))
    return Estimate(mean, quantile * float(np.std(values, ddof=1)) / count**0.5)


def _figures(own: Sequence[Totals], first: Sequence[Totals]) -> Mapping[str, Figure]:
    figures = {}
    for name in FIGURES:
        values = _known(own, name)
        if values is None:
            continue
        base = _known(first, name)
        ratio = None
        if base is not None and all(each > 0 for each in base):
            ratio = estimate([value / each for value, each in zip(values, base, strict=True)])
        figures[name] = Figure(estimate(values), ratio)
    return figures


def _known(totals: Sequence[Totals], name: str) -> list[float] | None:
    values = [getattr(each, name) for each in totals]
    return None if any(value is None for value in values) else [float(value) for value in values]
