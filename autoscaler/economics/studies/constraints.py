"""Deadline, budget and value of time of a study, and the accounting of its budget."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.objective import AfterDeadline
from autoscaler.domain.snapshot import StudySnapshot
from autoscaler.economics.pricing.objectives import (
    PriceRange,
    value_of_time,
    value_of_time_when_late,
)
from autoscaler.economics.pricing.wording import duration, money


@dataclass(frozen=True, slots=True)
class StudyConstraints:
    """Deadline, budget and value of time of a study, from now on.

    Attributes:
        deadline_seconds: seconds to the deadline; None: there is none, or it has passed.
        budget_usd: rest of the budget; None: there is none.
        usd_per_second: value of a second of the study beside these; 0: the cheapest plan.
        highest_usd_per_second: greatest value of a second, for a deadline.
        confidence: share of cases in which deadline and budget are to be kept.
        note: message on the constraints for the owner of the study; None: none.
        begins_none: whether no trial may begin any more.
    """

    deadline_seconds: float | None = None
    budget_usd: float | None = None
    usd_per_second: float = 0.0
    highest_usd_per_second: float = 0.0
    confidence: float = 0.95
    note: str | None = None
    begins_none: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.confidence <= 1:
            raise ValueError(f"confidence={self.confidence}: it is above 0 and at most 1")
        for name in ("deadline_seconds", "budget_usd", "usd_per_second"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name}={value}: it is at least 0")

    @property
    def bid(self) -> float:
        """Price that the study offers for its time, $ a second."""
        if self.deadline_seconds is None:
            return self.usd_per_second
        return self.highest_usd_per_second


def study_constraints(
    study: StudySnapshot, now_seconds: float, prices: PriceRange, dollar_weight: float = 1.0
) -> StudyConstraints:
    """Return the constraints of a study; values of time are those of docs/economics.md.

    `balanced` says: an hour of the whole study is worth what the cheapest size of a trial costs.
    A trial that trains is not stopped at a deadline: after one that says `stop` no trial begins.

    Args:
        study: the study.
        now_seconds: since the Unix epoch.
        prices: of the allocations that one trial may hold.
        dollar_weight: how much each dollar counts; time is worth as much less.
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
    return StudyConstraints(
        deadline_seconds=seconds,
        budget_usd=left,
        usd_per_second=worth / dollar_weight,
        highest_usd_per_second=prices.most,
        confidence=objective.confidence,
        note=note,
        begins_none=stops,
    )


class BudgetTracker:
    """Budget that is not reserved for any trial."""

    def __init__(self, budget_usd: float | None) -> None:
        self._left_usd = budget_usd

    @property
    def left_usd(self) -> float | None:
        """Rest of the budget that is not reserved; None: there is no budget."""
        return self._left_usd

    @property
    def is_open(self) -> bool:
        """Whether some of the budget is left."""
        return self._left_usd is None or self._left_usd > 0

    def reserve(self, usd: float) -> None:
        """Reserve an amount for one trial."""
        if self._left_usd is not None:
            self._left_usd -= usd

    def pays(self, usd: float) -> bool:
        """Return whether an amount is left."""
        return self._left_usd is None or usd <= self._left_usd

    def refusal(self, usd: float) -> str:
        """Return why a trial of this cost can't be paid."""
        left = money(max(self._left_usd or 0.0, 0.0))
        return f"its way costs {money(usd)}, and beside those that train {left} is left"
