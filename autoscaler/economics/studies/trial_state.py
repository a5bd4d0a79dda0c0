"""A trial of a study as it is planned for, and what it costs to train it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autoscaler.domain.terms import TrialProgress
from autoscaler.economics.studies.supply import StudySupply
from autoscaler.goodput.throughput import FloatArray

_LEAST_RATE = 1e-300
_NO_DRAWS = np.zeros((0, 0))


@dataclass(frozen=True, slots=True, eq=False)
class TrialState:
    """A trial that has not ended, or one that is expected to begin.

    Arrays have K equally likely draws of the trial's speed on A sizes.

    Attributes:
        id: name of the trial in reasons.
        to_decision: work to the pruner's next decision, in the trial's unit of progress; 0: the
            trial waits for that decision.
        goodput: units of work a second, (K, A); 0: not permitted now.
        held: index of the size that the trial holds; None: nothing.
        ready_seconds: until the trial trains on what it holds.
        paid_seconds: for which what it holds is paid for in any case (billing minimum).
        is_measured: whether the trial's own speed was measured, on any size.
        to_end: work to the end of the training.
        later_goodput: goodput before the trial's speed is known, (K, A).
        progress: latest report of the trial.
        can_pause: whether the trial resumes from a checkpoint after giving back its instances.
        is_changing: whether a change of its allocation has not yet come about.
        is_expected: whether it stands for a trial that has not begun, and may never.
    """

    id: str
    to_decision: float
    goodput: FloatArray
    held: int | None = None
    ready_seconds: float = 0.0
    paid_seconds: float = 0.0
    is_measured: bool = True
    to_end: float = 0.0
    later_goodput: FloatArray = field(default_factory=lambda: _NO_DRAWS)
    progress: TrialProgress = field(default_factory=lambda: TrialProgress(""))
    can_pause: bool = False
    is_changing: bool = False
    is_expected: bool = False

    @property
    def waits_for_decision(self) -> bool:
        """Whether the trial waits for its pruner."""
        return self.to_decision <= 0

    @property
    def can_train(self) -> bool:
        """Whether some size is permitted in every draw."""
        return bool((self.goodput > 0).any(axis=1).all())


@dataclass(frozen=True, slots=True)
class FreedInstances:
    """Instances of an offer that the study holds and no trial does."""

    offer: str
    instances: int
    paid_seconds: float = 0.0
    ready_seconds: float = 0.0


def size_of(trial: TrialState, supply: StudySupply) -> int | None:
    """Return the size that a trial holds, else its cheapest; None if none can run it."""
    if trial.held is not None:
        return trial.held
    return next(iter(supply.by_cost(np.median(trial.goodput, axis=0))), None)


def remaining_cost_usd(
    trial: TrialState,
    size: int,
    work: float,
    supply: StudySupply,
    within_seconds: float | None = None,
) -> float:
    """Return the cost of work on a size; of new instances with boot, start and least bill.

    Args:
        trial: the trial.
        size: index of the size.
        work: in the trial's unit of progress.
        supply: the sizes.
        within_seconds: from now, after which nothing is paid for any more; None: no end.
    """
    rate = np.maximum(trial.goodput[:, size], _LEAST_RATE)
    is_held = trial.held == size
    starts = trial.ready_seconds if is_held else supply.order_seconds(size)
    seconds = starts + float((work / rate).mean())
    if within_seconds is not None:
        seconds = min(seconds, within_seconds)
    price = float(supply.usd_per_second[size])
    if is_held:
        return (seconds - min(trial.paid_seconds, seconds)) * price
    return max(seconds, float(supply.minimum_billed_seconds[size])) * price
