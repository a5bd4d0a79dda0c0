"""What the objective of a study asks for now, and what money there is for it."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.objective import AfterDeadline
from autoscaler.domain.snapshot import StudySnapshot
from autoscaler.economics.objectives import PriceRange, value_of_time, value_of_time_when_late
from autoscaler.economics.wording import duration, money


@dataclass(frozen=True, slots=True)
class StudyGoal:
    """What a study is to come to, from now on.

    Attributes:
        value_of_time: $ a second that the study takes, where neither deadline nor budget decides.
        most: the highest value of time, $ a second.
        deadline_seconds: from now; None: there is none, or none any more.
        left_usd: of the budget; None: there is none.
        confidence: in how many cases deadline and budget are to be kept.
        note: what its owner should know of it.
        begins_none: no trial is to begin any more.
    """

    value_of_time: float
    most: float
    deadline_seconds: float | None
    left_usd: float | None
    confidence: float
    note: str | None = None
    begins_none: bool = False

    @property
    def bid(self) -> float:
        """$ a second that its time is worth to it: for a deadline as much as may be."""
        return self.value_of_time if self.deadline_seconds is None else self.most


def study_goal(study: StudySnapshot, now_seconds: float, prices: PriceRange) -> StudyGoal:
    """As docs/economics.md has it of a job; `prices` are those of what one trial may hold.

    So `balanced` says: an hour of the whole study is worth what the cheapest that can run one of
    its trials costs. Nothing that trains is stopped for a deadline: where it is to `stop` then,
    no trial begins any more.
    """
    objective = study.terms.objective
    seconds = left = note = None
    if objective.deadline_seconds is not None:
        seconds = objective.deadline_seconds - now_seconds
    if objective.budget_usd is not None:
        left = max(float(objective.budget_usd) - study.spent_usd, 0.0)
    worth = value_of_time(objective, prices)
    stops = False
    if seconds is not None and seconds <= 0:
        after = objective.after_deadline
        stops = after is AfterDeadline.STOP
        worth = value_of_time_when_late(objective, prices)
        ends = "no trial begins any more" if stops else f"now {after.value}"
        note, seconds = f"deadline missed by {duration(-seconds)}, {ends}", None
    return StudyGoal(
        value_of_time=worth,
        most=prices.most,
        deadline_seconds=seconds,
        left_usd=left,
        confidence=objective.confidence,
        note=note,
        begins_none=stops,
    )


class Purse:
    """What is left of a budget beyond what was promised from it."""

    def __init__(self, left_usd: float | None) -> None:
        self._left_usd = left_usd

    @property
    def left_usd(self) -> float | None:
        """Not promised to anyone; None: there is no budget."""
        return self._left_usd

    @property
    def is_open(self) -> bool:
        """Something is left."""
        return self._left_usd is None or self._left_usd > 0

    def promise(self, usd: float) -> None:
        """Keep so much for one."""
        if self._left_usd is not None:
            self._left_usd -= usd

    def bears(self, usd: float) -> bool:
        """Whether so much is left."""
        return self._left_usd is None or usd <= self._left_usd

    def refusal(self, usd: float) -> str:
        """Why one that costs so much can't be paid."""
        left = money(max(self._left_usd or 0.0, 0.0))
        return f"its way costs {money(usd)}, and beside those that train {left} is left"
