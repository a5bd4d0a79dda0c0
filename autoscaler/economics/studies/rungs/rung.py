"""The present rung of a synchronous search, and the rungs that follow.

A rung is a stage of the search: its trials train up to a barrier, some survive, and the next rung
begins when the last trial has arrived. The pruner decides who survives; the plan decides what each
trial holds until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.economics.studies.trial_state import FreedInstances, TrialState
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class FutureRung:
    """A later rung of n trials, of which only a distribution is known.

    Attributes:
        work: of each trial, (K, n).
        goodput: units of work a second of each trial on every size, (K, n, A).
    """

    work: FloatArray
    goodput: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Rung:
    """The present rung, the free instances of the study, and the later rungs.

    `may_pause`: trials that train may be paused for a look at another, and go on where they were.
    """

    trials: tuple[TrialState, ...]
    freed: tuple[FreedInstances, ...] = ()
    future: tuple[FutureRung, ...] = ()
    may_pause: bool = True

    def __post_init__(self) -> None:
        for trial in self.trials:
            if trial.waits_for_decision:
                raise ValueError(f"trial {trial.id} is at its barrier: it is none of the rung")
            if not trial.can_train:
                raise ValueError(f"trial {trial.id}: no size can run it")


@dataclass(frozen=True, slots=True)
class SurvivorDraws:
    """Chances of the trials to survive, `weights` (n,) or None where alike, and a random seed."""

    weights: FloatArray | None = None
    seed: int = 0


def future_rungs(
    goodput: FloatArray,
    counts: Sequence[int],
    works: Sequence[float],
    survivors: SurvivorDraws | None = None,
) -> tuple[FutureRung, ...]:
    """Draw later rungs from the trials of the present one, each a part of the rung before.

    In each draw the trials get an order of survival, drawn without replacement by their weights
    (least exponential over weight first: Efraimidis and Spirakis 2006). Rung r is the first
    `counts[r]` of them. The first place is stratified: each trial has it in its share of the
    draws, so that with as many draws as trials the slowest trial is once the last one left.

    Args:
        goodput: of the n trials in the race, (K, n, A).
        counts: number of trials of each later rung.
        works: work of each trial in each later rung.
        survivors: weights of the trials; None: all alike.
    """
    draws, trials, _ = goodput.shape
    survivors = survivors or SurvivorDraws()
    weights = (
        np.ones(trials) if survivors.weights is None else np.maximum(survivors.weights, 1e-12)
    )
    rng = np.random.default_rng(survivors.seed)
    order = np.argsort(rng.exponential(size=(draws, trials)) / weights, axis=1)
    order = _with_stratified_first(order, weights / weights.sum())
    rungs = []
    for count, work in zip(counts, works, strict=True):
        chosen = order[:, : min(count, trials)]
        rate = np.take_along_axis(goodput, chosen[:, :, None], axis=1)
        rungs.append(FutureRung(np.full(chosen.shape, float(work)), rate))
    return tuple(rungs)


def _with_stratified_first(order: IntArray, share: FloatArray) -> IntArray:
    """Return the orders (K, n) with their first places set by systematic sampling of shares."""
    draws = len(order)
    points = (np.arange(draws) + 0.5) / draws
    first = np.searchsorted(np.cumsum(share), points, side="right").clip(max=len(share) - 1)
    rest = order != first[:, None]
    kept = order[rest].reshape(draws, -1)
    stratified: IntArray = np.concatenate([first[:, None], kept], axis=1)
    return stratified
