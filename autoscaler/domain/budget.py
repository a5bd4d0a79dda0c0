"""Budgets of people, teams, studies and the fleet: limits in US dollars that jobs share."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from autoscaler.domain.access import OWNER, Owner, require_person_name, require_team_name
from autoscaler.domain.errors import SpecError
from autoscaler.domain.rules import require_amount, require_name
from autoscaler.domain.text import quoted

_SCOPES: Final = "write person:NAME, team:NAME, study:NAME or fleet"
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


class ScopeKind(StrEnum):
    """Kind of a budget's scope."""

    PERSON = "person"
    TEAM = "team"
    STUDY = "study"
    FLEET = "fleet"


@dataclass(frozen=True, slots=True, order=True)
class BudgetScope:
    """Jobs that share a budget: those of a person, a team or a study, or all.

    `name` is that of the person, the team or the study; empty for the fleet.
    """

    kind: ScopeKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)

    @property
    def words(self) -> str:
        """The scope as in a sentence, such as `team nlp`."""
        return f"{self.kind} {self.name}" if self.name else "the fleet"

    def covers(self, owner: Owner, study: str | None) -> bool:
        """Return whether a job of this owner and study counts."""
        match self.kind:
            case ScopeKind.PERSON:
                return owner.person == self.name
            case ScopeKind.TEAM:
                return owner.team == self.name
            case ScopeKind.STUDY:
                return study == self.name
            case ScopeKind.FLEET:
                return True


def parse_scope(text: str) -> BudgetScope:
    """Return the scope of a text such as `team:nlp`.

    Raises:
        SpecError: the text is no scope.
    """
    kind_text, _, name = text.partition(":")
    try:
        kind = ScopeKind(kind_text)
    except ValueError:
        raise SpecError(f"{quoted(text)} is not a scope: {_SCOPES}", "scope") from None
    if (kind is ScopeKind.FLEET) != (text == kind):
        raise SpecError(f"{quoted(text)} is not a scope: {_SCOPES}", "scope")
    match kind:
        case ScopeKind.PERSON if name != OWNER:
            require_person_name(name)
        case ScopeKind.TEAM:
            require_team_name(name)
        case ScopeKind.STUDY:
            require_name(name, "scope")
    return BudgetScope(kind, name)


@dataclass(frozen=True, slots=True)
class BudgetPeriod:
    """Span of time in which a budget counts, in seconds since the Unix epoch."""

    start_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """Length of the period; infinity for all time."""
        return self.end_seconds - self.start_seconds


ALL_TIME: Final = BudgetPeriod(-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on what the jobs of a scope may cost together. None: no such limit.

    Attributes:
        scope: the jobs.
        month_usd: US dollars in each calendar month of `zone`.
        total_usd: US dollars since the first instance.
        hourly_usd: price of the instances that are held at the same time, $/h.
        zone: IANA name of the time zone in which months begin.
    """

    scope: BudgetScope
    month_usd: Decimal | None = None
    total_usd: Decimal | None = None
    hourly_usd: Decimal | None = None
    zone: str = "UTC"

    def month(self, now_seconds: float) -> BudgetPeriod:
        """Return the calendar month of a time, in the budget's zone."""
        return month_of(now_seconds, self.zone)

    @property
    def text(self) -> str:
        """The limits in words, such as `$500 a month (UTC), $20/h`."""
        limits = (
            None if self.month_usd is None else f"${self.month_usd} a month ({self.zone})",
            None if self.total_usd is None else f"${self.total_usd} in all",
            None if self.hourly_usd is None else f"${self.hourly_usd}/h",
        )
        return ", ".join(limit for limit in limits if limit is not None)


def require_budget(budget: Budget) -> None:
    """Check the limits and the zone of a budget.

    Raises:
        SpecError: a limit is not above 0, there is none, or the zone is unknown.
    """
    limits = {
        "month_usd": budget.month_usd,
        "total_usd": budget.total_usd,
        "hourly_usd": budget.hourly_usd,
    }
    for field, limit in limits.items():
        if limit is not None:
            require_amount(limit, field)
    if all(limit is None for limit in limits.values()):
        raise SpecError(
            "give at least one of month_usd, total_usd and hourly_usd (--month, --total, --hourly)"
        )
    _zone(budget.zone)


@lru_cache(maxsize=1024)
def month_of(now_seconds: float, zone: str) -> BudgetPeriod:
    """Return the calendar month of a time in a time zone.

    Raises:
        SpecError: the zone is unknown.
    """
    place = _zone(zone)
    now = datetime.fromtimestamp(now_seconds, place)
    following = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
    return BudgetPeriod(
        datetime(now.year, now.month, 1, tzinfo=place).timestamp(),
        datetime(*following, 1, tzinfo=place).timestamp(),
    )


def month_name(period: BudgetPeriod, zone: str) -> str:
    """Return the name of a month, such as `2026-11`."""
    return f"{datetime.fromtimestamp(period.start_seconds, _zone(zone)):%Y-%m}"


def moment_text(at_seconds: float, zone: str) -> str:
    """Return a time in a zone, such as `2026-12-01 00:00 Europe/Berlin`."""
    return f"{datetime.fromtimestamp(at_seconds, _zone(zone)):%Y-%m-%d %H:%M} {zone}"


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    """Return a time zone; UTC needs no data of the system.

    Raises:
        SpecError: the zone is unknown.
    """
    if name == "UTC":
        return UTC
    try:
        if not _ZONE.fullmatch(name):
            raise ValueError(name)
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SpecError(
            f"{quoted(name)} is not a time zone of this machine: write an IANA name such as "
            "Europe/Berlin, or UTC",
            "zone",
        ) from None


class BudgetBasis(StrEnum):
    """Limit of a budget that bounds spending from now on."""

    MONTH = "month"
    PACE = "pace"
    TOTAL = "total"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class BudgetRoom:
    """Bound on the spending of a budget's jobs from now on, which is kept in one of two ways.

    Either the jobs spend at most `usd` within `seconds`, or their instances cost at most
    `usd_per_hour` together. `seconds` is infinity for the rest of all time.
    """

    basis: BudgetBasis
    usd: float
    seconds: float
    usd_per_hour: float = 0.0

    def words(self, scope: str) -> str:
        """Return how near the limit a scope is, such as `team nlp is at its pace of $2.70/h`."""
        pace_usd_per_hour = max(self.usd_per_hour, self.usd / self.seconds * 3600.0)
        match self.basis:
            case BudgetBasis.TOTAL:
                return f"{scope} has ${self.usd:.2f} left in all"
            case BudgetBasis.HOUR:
                return f"{scope} is at its limit of ${self.usd_per_hour:.2f}/h"
            case _:
                return f"{scope} is at its pace of ${pace_usd_per_hour:.2f}/h"


@dataclass(frozen=True, slots=True)
class BudgetState:
    """Spending that a budget permits from now on, as a policy knows it.

    `used_up` is why they must hold nothing, with the way out; None: something is left.
    """

    scope: str
    words: str
    rooms: tuple[BudgetRoom, ...] = ()
    used_up: str | None = None


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """Result of a plan for one budget.

    Attributes:
        scope: the budget.
        dollar_weight: how much each dollar counts for its jobs; 1: as it is.
        basis: the limit behind a weight above 1; None: none binds.
        planned_usd: what the jobs present will spend within the room of the month, or of the
            total without one, at that weight.
        wished_usd: the same at weight 1.
    """

    scope: str
    dollar_weight: float = 1.0
    basis: BudgetBasis | None = None
    planned_usd: float = 0.0
    wished_usd: float = 0.0
