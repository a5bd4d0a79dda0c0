"""Decisions for the trials of a study, as data that can be printed, stored and replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.forecasts.forecast import Range


class TrialAction(StrEnum):
    """Change of a trial's allocation."""

    HOLD = "hold"
    RESIZE = "resize"
    START = "start"
    TAKE_OVER = "take over"
    WAIT = "wait"
    PAUSE = "pause"


class WaitCause(StrEnum):
    """Cause for which a trial holds nothing."""

    NO_OFFER = "no offer"
    ENOUGH_TRAIN = "enough train"
    BUDGET = "budget"
    DEADLINE = "deadline"
    LIMITS = "limits"
    BARRIER = "barrier"
    OTHER_TRIAL = "other trial"


_HOLDING: Final = frozenset(
    (TrialAction.HOLD, TrialAction.RESIZE, TrialAction.START, TrialAction.TAKE_OVER)
)


@dataclass(frozen=True, slots=True)
class TrialDecision:
    """Decision of a plan on one trial.

    Attributes:
        trial: id of the trial.
        action: change of its allocation.
        size: allocation to hold now, or after the wait for another trial's instances.
        reason: one line that begins with the change.
        seconds: until it reaches its barrier; None: not known.
        cause: cause of the wait; None: it holds something.
    """

    trial: str
    action: TrialAction
    size: Allocation | None
    reason: str
    seconds: Range | None = None
    cause: WaitCause | None = None

    @property
    def target(self) -> Allocation | None:
        """Allocation to hold now; None: nothing."""
        return self.size if self.action in _HOLDING else None


def holds(trial: str, size: Allocation, why: str) -> TrialDecision:
    """Return the decision that a trial keeps what it holds."""
    return TrialDecision(trial, TrialAction.HOLD, size, f"hold {trial} at {size}{why}")


def waits(trial: str, cause: WaitCause, why: str) -> TrialDecision:
    """Return the decision that a trial holds nothing."""
    return TrialDecision(trial, TrialAction.WAIT, None, f"wait {trial}{why}", cause=cause)


@dataclass(frozen=True, slots=True)
class StandbyTarget:
    """Number of free instances of an offer to keep for the next rung."""

    offer: str
    keep: int
    reason: str


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """Plan of a study until the next event.

    Attributes:
        decisions: one a trial, in the order of the trials.
        usd_per_second: marginal value of a second of the study.
        bid: worth of one more instance beyond its price, $ a second.
        seconds: until the study is done; None: not known.
        barrier_seconds: until the barrier; None: trials do not wait for each other.
        usd: remaining cost of the study; None: not known.
        chance: chance that deadline and budget are kept; None: not known.
        shortfall: constraints that can't be kept, and what can; None: all can.
        standby: free instances kept for the next rung; None: none.
    """

    decisions: tuple[TrialDecision, ...]
    usd_per_second: float = 0.0
    bid: float = 0.0
    seconds: Range | None = None
    barrier_seconds: Range | None = None
    usd: Range | None = None
    chance: float | None = None
    shortfall: str | None = None
    standby: StandbyTarget | None = None

    def with_note(self, note: str | None) -> StudyPlan:
        """Return the plan with one more note for the owner."""
        notes = [text for text in (self.shortfall, note) if text]
        return replace(self, shortfall="; ".join(notes) or None)
