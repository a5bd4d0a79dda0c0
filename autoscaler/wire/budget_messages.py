"""Messages of the HTTP API about shared budgets."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from pydantic import ConfigDict

from autoscaler.domain.budget import BudgetBasis
from autoscaler.wire.messages import FROM_PEOPLE


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """Limits of a budget in place of all earlier ones of its scope. None: no such limit.

    `zone` is the IANA name of the time zone in which months begin.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    month_usd: Decimal | None = None
    total_usd: Decimal | None = None
    hourly_usd: Decimal | None = None
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class BudgetView:
    """A budget, and the spending of its jobs.

    Attributes:
        scope: the jobs, as `person:NAME`, `team:NAME`, `study:NAME` or `fleet`.
        month_begins_seconds: start of the present month in the budget's zone.
        month_ends_seconds: its end.
        spent_month_usd: cost of the jobs in the present month; None without a limit for months.
        spent_total_usd: cost of the jobs since the first instance; None without a limit for it.
        usd_per_hour: price of the instances that the jobs hold.
        pace_usd_per_hour: price at which the rest of the month's dollars lasts to its end; None
            without a limit for months.
        reserved_usd: kept for leaving the held instances with a checkpoint.
        dollar_weight: how much each dollar counts for the jobs in the last plan. Above 1 all of
            them slow, so that their spending keeps within the budget.
        bound_by: the limit behind a weight above 1.
        used_up: why the jobs hold nothing; None: something is left.
        expected_low_usd: lower end of what the month will cost; None without a limit for months.
        expected_high_usd: upper end. The ends are what the present jobs will spend, and the
            spending of the month so far, continued.
        version: changes with the limits and the zone, and is what `If-Match` takes.
    """

    scope: str
    month_usd: Decimal | None
    total_usd: Decimal | None
    hourly_usd: Decimal | None
    zone: str
    month_begins_seconds: float
    month_ends_seconds: float
    spent_month_usd: Decimal | None
    spent_total_usd: Decimal | None
    usd_per_hour: Decimal
    pace_usd_per_hour: float | None
    reserved_usd: Decimal
    dollar_weight: float = 1.0
    bound_by: BudgetBasis | None = None
    used_up: str | None = None
    expected_low_usd: float | None = None
    expected_high_usd: float | None = None
    version: str = ""
