"""Trials without a barrier: what is known of each, what bounds them, what is decided."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.studies.rung import FreedInstances
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class AsyncTrial:
    """A trial that trains, one that was paused, or a fresh one that the sampler has ready.

    Attributes:
        id: its name in reasons.
        goodput: units of work a second on every size, (A,); 0: can't run there.
        to_rung: work to its next decision.
        to_end: work to the end of its training.
        values: what it will be worth after each of P amounts of work from now, in K draws,
            (K, P), better is more; what the curve model predicts.
        works: those amounts, rising, (P,).
        held: the size it holds; None: fresh, or paused.
        rests_seconds: since its last resize; inf if there was none.
        decisions: how many decisions of its pruner it has behind it.
        later: work from each decision to the next, of those after the next, as far as known.
        paid_seconds: of what it holds that are paid for already (the billing minimum).
    """

    id: str
    goodput: FloatArray
    to_rung: float
    to_end: float
    values: FloatArray
    works: FloatArray
    held: int | None = None
    rests_seconds: float = float("inf")
    decisions: int = 0
    later: tuple[float, ...] = ()
    paid_seconds: float = 0.0

    def expected_work(self, survival: float) -> float:
        """Work that it is likely to do: to its next decision, and on as far as it survives."""
        known = (self.to_rung, *self.later)
        segments = (*known, max(self.to_end - sum(known), 0.0))
        return sum(work * survival**place for place, work in enumerate(segments))


@dataclass(frozen=True, slots=True)
class AsyncTerms:
    """What bounds an asynchronous study from now on.

    Attributes:
        best: the best value so far; -inf if there is none.
        deadline_seconds: None: there is none.
        budget_usd: what is left of it beyond what is billed in any case; None: there is none.
        freed: free instances that may be handed on; of a reserved one paid seconds have no end.
        survival: the share of trials that goes on at a decision of the pruner.
        finalists: for how many of the best the budget is kept (G5).
        hysteresis: the least share of the time left that a resize must save (G6).
        cooldown_seconds: the least time between two resizes of a trial (G6).
    """

    best: float
    deadline_seconds: float | None = None
    budget_usd: float | None = None
    freed: tuple[FreedInstances, ...] = ()
    survival: float = 0.5
    finalists: int = 1
    hysteresis: float = 0.1
    cooldown_seconds: float = 300.0


class AsyncAction(StrEnum):
    """What becomes of a trial."""

    START = "start"
    HOLD = "hold"
    GROW = "grow"
    WAIT = "wait"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class AsyncDecision:
    """One trial's part and the guard that decided it."""

    trial: str
    action: AsyncAction
    size: Allocation | None
    reason: str


@dataclass(frozen=True, slots=True)
class BreadthPlan:
    """Decisions in the order given, what to release, and what is kept of the budget for finalists.

    What is free and paid for is not released: keeping it costs nothing.
    """

    decisions: tuple[AsyncDecision, ...]
    release: tuple[tuple[str, int], ...]
    reserve_usd: float


def expected_improvement(values: FloatArray, best: float) -> float:
    """``E[(Y - best)^+]`` over draws; of a study without a best the spread of Y."""
    if not np.isfinite(best):
        best = float(np.min(values))
    return float(np.maximum(values - best, 0.0).mean())


def reachable_values(trial: AsyncTrial, work: float) -> FloatArray:
    """What the trial is worth after so much work, at most to its end, in each draw, (K,)."""
    work = min(work, trial.to_end)
    return np.array([np.interp(work, trial.works, row) for row in trial.values])
