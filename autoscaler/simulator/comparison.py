"""Comparison of policies on the same work over several seeds: means and confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from autoscaler.simulator.results import Result, Totals

_CONFIDENCE = 0.95
# Spread relative to the mean that counts as rounding error.
_NO_SPREAD = 1e-12


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean over seeds, and half the width of its 95 % confidence interval by Student's t.

    `half_width` is None for a single seed.
    """

    mean: float
    half_width: float | None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one policy, and its ratio to the first policy's figure at the same seed.

    `ratio` is None if the first policy's figure is missing or 0.
    """

    value: Estimate
    ratio: Estimate | None


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """Figures of one policy by their names in `Totals`, and its totals by seed."""

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


def compare(results: Mapping[str, Sequence[Result]]) -> tuple[PolicyFigures, ...]:
    """Compare the policies with the first; each has one result per seed, in the same order."""
    totals = {policy: tuple(run.totals for run in runs) for policy, runs in results.items()}
    first = next(iter(totals.values()))
    return tuple(
        PolicyFigures(policy, _figures(policy_totals, first), policy_totals)
        for policy, policy_totals in totals.items()
    )


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of at least one independent value, with its confidence interval."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Estimate(mean, None)
    if max(values) - min(values) <= _NO_SPREAD * abs(mean):
        return Estimate(mean, 0.0)
    quantile = float(stdtrit(count - 1, (1 + _CONFIDENCE) / 2))
    return Estimate(mean, quantile * float(np.std(values, ddof=1)) / count**0.5)


def _figures(totals: Sequence[Totals], first: Sequence[Totals]) -> Mapping[str, Figure]:
    figures = {}
    for name in FIGURES:
        values = _values_of(totals, name)
        if values is None:
            continue
        base = _values_of(first, name)
        ratio = None
        if base is not None and all(base_value > 0 for base_value in base):
            ratio = estimate(
                [value / base_value for value, base_value in zip(values, base, strict=True)]
            )
        figures[name] = Figure(estimate(values), ratio)
    return figures


def _values_of(totals: Sequence[Totals], name: str) -> list[float] | None:
    values = [getattr(run_totals, name) for run_totals in totals]
    return None if any(value is None for value in values) else [float(value) for value in values]
