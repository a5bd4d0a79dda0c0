"""What a job's owner wants, in the owner's terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum


class Preference(StrEnum):
    """How money is weighed against time where no deadline or budget decides."""

    BALANCED = "balanced"
    CHEAPEST = "cheapest"
    FASTEST = "fastest"
    VALUE_OF_TIME = "value_of_time"


class AfterDeadline(StrEnum):
    """What becomes of a job whose deadline has passed or is out of reach."""

    BALANCED = "balanced"
    FASTEST = "fastest"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Objective:
    """A preference, and optionally a deadline, a budget, or both.

    `deadline_seconds` is absolute (Unix epoch); `budget_usd` is for the whole job and is never
    passed; `confidence` is the probability with which deadline and budget are to be kept.

    `cap_usd` is the default budget of the deployment: it is never passed either, but no plan aims
    to use it up, so that it does not weigh money against time. `is_uncapped` states that the owner
    wants no budget.
    """

    preference: Preference = Preference.BALANCED
    value_of_time_usd_per_hour: float | None = None
    deadline_seconds: float | None = None
    budget_usd: Decimal | None = None
    confidence: float = 0.9
    after_deadline: AfterDeadline = AfterDeadline.BALANCED
    cap_usd: Decimal | None = None
    is_uncapped: bool = False

    @property
    def most_usd(self) -> Decimal | None:
        """What must never be passed, in US dollars; None: nothing bounds the cost."""
        return self.cap_usd if self.budget_usd is None else self.budget_usd

    def capped(self, default_usd: Decimal | None) -> Objective:
        """Return this objective with the default budget of a deployment, if it names none."""
        has_none = self.budget_usd is None and not self.is_uncapped
        return replace(self, cap_usd=default_usd if has_none else None)

    def __post_init__(self) -> None:
        if (self.preference is Preference.VALUE_OF_TIME) != (
            self.value_of_time_usd_per_hour is not None
        ):
            raise ValueError(
                "value_of_time_usd_per_hour goes with preference value_of_time: give both, or "
                "neither"
            )
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence={self.confidence} is outside [0.5, 1)")
