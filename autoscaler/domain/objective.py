"""Objectives of a job's owner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum


class Preference(StrEnum):
    """Rule that weighs money against time where no deadline or budget decides."""

    BALANCED = "balanced"
    CHEAPEST = "cheapest"
    FASTEST = "fastest"
    VALUE_OF_TIME = "value_of_time"


class AfterDeadline(StrEnum):
    """Rule for a job whose deadline has passed or can't be kept."""

    BALANCED = "balanced"
    FASTEST = "fastest"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Objective:
    """A preference, and optionally a deadline, a budget, or both.

    `deadline_seconds` is absolute (Unix epoch). `budget_usd` bounds the cost of the whole job and
    is never exceeded. `confidence` is the probability with which plans keep deadline and budget.

    `cap_usd` is the default budget of the deployment. It is never exceeded either, but plans do
    not aim to use it up, so it does not weigh money against time. `is_uncapped` states that the
    owner wants no budget.
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
        """Upper bound of the job's cost in US dollars; None: no bound."""
        return self.cap_usd if self.budget_usd is None else self.budget_usd

    def capped(self, default_usd: Decimal | None) -> Objective:
        """Return this objective with the deployment's default budget, if it has no budget."""
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
