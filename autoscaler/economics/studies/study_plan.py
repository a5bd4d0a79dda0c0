"""Decisions for the trials of a study, as data that can be printed, stored and replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.forecast import Range


class TrialAction(StrEnum):
    """What becomes of a trial now."""

    HOLD = "hold"
    RESIZE = "resize"
    START = "start"
    TAKE_OVER = "take over"
    WAIT = "wait"
    PAUSE = "pause"


class WaitCause(StrEnum):
    """Why a trial holds nothing."""

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
    """One trial's part of a plan.

    Attributes:
        trial: its id.
        action: what becomes of it now.
        size: what it holds now, or, where it waits for another trial's instances, will hold then.
        reason: one line; it begins with what changes, as the reasons of decisions on jobs do.
        after: the trial whose instances it waits for; None: it waits for none.
        seconds: until it reaches its barrier; None: not known.
        cause: why it waits; None: it holds something.
    """

    trial: str
    action: TrialAction
    size: Allocation | None
    reason: str
    after: str | None = None
    seconds: Range | None = None
    cause: WaitCause | None = None

    @property
    def target(self) -> Allocation | None:
        """What it is to hold now; None: nothing."""
        return self.size if self.action in _HOLDING else None


def holds(trial: str, size: Allocation, why: str) -> TrialDecision:
    """Return the decision that a trial keeps what it holds."""
    return TrialDecision(trial, TrialAction.HOLD, size, f"hold {trial} at {size}{why}")


def waits(trial: str, cause: WaitCause, why: str) -> TrialDecision:
    """Return the decision that a trial holds nothing."""
    return TrialDecision(trial, TrialAction.WAIT, None, f"wait {trial}{why}", cause=cause)


@dataclass(frozen=True, slots=True)
class Standby:
    """Number of free instances of an offer to keep for the next rung."""

    offer: str
    keep: int
    reason: str


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """The plan of a study until the next news.

    Attributes:
        decisions: one a trial, in the order given.
        usd_per_second: what a second of the study is worth to it, at the margin.
        bid: what an instance more is worth to it, $ a second beyond its price.
        seconds: until the study is done; None: not known.
        barrier_seconds: until its trials no longer wait for each other; None: they don't.
        usd: what the study still costs; None: not known.
        chance: that deadline and budget are kept; None: not known.
        shortfall: what can't be kept and what can, for the study's owner; None: all can.
        standby: what is kept for the next rung.
    """

    decisions: tuple[TrialDecision, ...]
    usd_per_second: float = 0.0
    bid: float = 0.0
    seconds: Range | None = None
    barrier_seconds: Range | None = None
    usd: Range | None = None
    chance: float | None = None
    shortfall: str | None = None
    standby: Standby | None = None

    def with_note(self, note: str | None) -> StudyPlan:
        """Return the plan with a note more for the owner."""
        notes = [each for each in (self.shortfall, note) if each]
        return replace(self, shortfall="; ".join(notes) or None)
