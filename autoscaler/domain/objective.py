"""What a job's owner wants, in the owner's terms."""

from __future__ import annotations

from dataclasses import dataclass
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
    """

    preference: Preference = Preference.BALANCED
    value_of_time_usd_per_hour: float | None = None
    deadline_seconds: float | None = None
    budget_usd: Decimal | None = None
    confidence: float = 0.9
    after_deadline: AfterDeadline = AfterDeadline.BALANCED

    def __post_init__(self) -> None:
        if (self.preference is Preference.VALUE_OF_TIME) != (
            self.value_of_time_usd_per_hour is not None
        ):
            raise ValueError("value_of_time_usd_per_hour goes with preference value_of_time")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence={self.confidence} is outside [0.5, 1)")
