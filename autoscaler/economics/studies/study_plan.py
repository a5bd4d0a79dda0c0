"""What is decided for a study's rung, as data that can be printed, stored and replayed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.forecast import Range


@dataclass(frozen=True, slots=True)
class StudyAim:
    """What the owner of a study wants, from now on.

    Attributes:
        deadline_seconds: by when all rungs are to be done.
        budget_usd: what all rungs may cost.
        usd_per_hour: what an hour of the study is worth, beside those; 0: the cheapest.
        confidence: in how many of the draws in which they can be kept they are to be.
    """

    deadline_seconds: float | None = None
    budget_usd: float | None = None
    usd_per_hour: float = 0.0
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.confidence <= 1:
            raise ValueError(f"confidence={self.confidence}: it is above 0 and at most 1")
        for name in ("deadline_seconds", "budget_usd", "usd_per_hour"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name}={value}: it is at least 0")


class TrialAction(StrEnum):
    """What becomes of a trial now."""

    HOLD = "hold"
    RESIZE = "resize"
    START = "start"
    TAKE_OVER = "take over"
    WAIT = "wait"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class TrialDecision:
    """One trial's part: it goes to `size` now, or, waiting, after the trial `after` is done.

    One that pauses leaves what it holds to another and waits.
    """

    trial: str
    action: TrialAction
    size: Allocation
    after: str | None
    seconds: Range
    reason: str


@dataclass(frozen=True, slots=True)
class Standby:
    """Instances of an offer for the next rung: how many to keep, how many to order, and when."""

    offer: str
    keep: int
    order: int
    order_in_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """The plan of a rung until the next news.

    Attributes:
        decisions: one a trial, in the order given.
        release: (offer, instances) that nobody needs: to be let go at once.
        standby: what is kept or ordered ahead for the next rung.
        usd_per_hour: the multiplier: what an hour of study time is worth, at the margin.
        barrier_seconds: when this rung is done.
        seconds: when the study is done, all rungs.
        usd: what the study still costs.
        chance: that deadline and budget are kept.
        shortfall: why they are not, and what could be; None if they are.
        is_pressed: on sizes of least $ for their work later rungs may well be too late.
    """

    decisions: tuple[TrialDecision, ...]
    release: tuple[tuple[str, int], ...]
    standby: Standby | None
    usd_per_hour: float
    barrier_seconds: Range
    seconds: Range
    usd: Range
    chance: float
    shortfall: str | None = None
    is_pressed: bool = False
