"""NoticeFacts from which notices follow: jobs, studies, budgets and providers at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.domain.budget import BudgetBasis
from autoscaler.domain.job import JobRecord
from autoscaler.domain.plan import Decision
from autoscaler.store.repositories.reports import FailureRecord


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job that runs or ended lately.

    `spent_usd` and `usd_per_hour` are 0 while no notice needs them. `failure` is its last one;
    None: it has not failed lately. `stall` says why it seems not to learn; None: it does.
    `decision` is the one in force. `left_seconds` is the time to its end at the present speed;
    None: unknown.
    """

    job: JobRecord
    spent_usd: Decimal
    usd_per_hour: Decimal
    failure: FailureRecord | None = None
    stall: str | None = None
    decision: Decision | None = None
    left_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class BudgetFacts:
    """A budget, and the spending of its jobs in US dollars.

    Attributes:
        scope: whose budget it is: `job`, `study`, `person`, `team` or `fleet`.
        name: its name in that scope; empty for the fleet.
        budget_usd, spent_usd, usd_per_hour: the limit, the cost so far, and the present rate.
        left_seconds: time until its work or its period ends; None: unknown.
        needed_usd: cost of all its work as planned, which exceeds the budget; None: it does not,
            or nobody knows.
        job: the only job of the budget; None for several.
        person, team: owner of the budget.
        month: its month, such as `2026-11`; None: it is no budget by month.
        expected_usd: ends of what the whole month will cost, beyond the limit too; None: it is no
            budget by month, or nobody knows.
    """

    scope: str
    name: str
    budget_usd: Decimal
    spent_usd: Decimal
    usd_per_hour: Decimal
    left_seconds: float | None = None
    needed_usd: float | None = None
    job: JobRecord | None = None
    person: str | None = None
    team: str | None = None
    month: str | None = None
    expected_usd: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """A shared limit in all or by the hour, and what its jobs use of it.

    Attributes:
        scope, name: as in `BudgetFacts`.
        basis: whether the limit is one in all, in US dollars, or by the hour, in $/h.
        limit, used: the limit, and the cost so far or the present price of all instances.
        usd_per_hour: present price of all instances.
        way_out: what raises the limit.
        is_used_up: whether jobs wait because nothing is left of it.
        person, team: owner of the budget.
    """

    scope: str
    name: str
    basis: BudgetBasis
    limit: Decimal
    used: Decimal
    usd_per_hour: Decimal
    way_out: str
    is_used_up: bool = False
    person: str | None = None
    team: str | None = None


@dataclass(frozen=True, slots=True)
class StudyFacts:
    """A study whose driver has left, and whose trials have all ended or were stopped.

    `trials` have begun, and `to_begin` more were wanted; None: no number was. `best` is the best
    first value; None: no trial has one. `left_open` trials have no result; `cause` says why they
    were stopped, None if on request. The last job ended at `ended_seconds`.
    """

    name: str
    trials: int
    to_begin: int | None
    best: float | None
    spent_usd: Decimal
    person: str
    team: str | None
    ended_seconds: float
    left_open: int = 0
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class SilentProvider:
    """A provider whose instances can't be listed now, and what the store knows of them."""

    name: str
    instances: int
    usd_per_hour: Decimal


@dataclass(frozen=True, slots=True)
class NoticeFacts:
    """Everything that notices follow from, at `now_seconds`.

    `since_seconds` is the time before which no ended job is of interest: notices were off, or too
    much time has passed. `strays` are ids, in their clouds, of instances of this deployment that
    run without an order; `overdue` have been asked to end this many seconds ago and still run.
    """

    now_seconds: float
    since_seconds: float
    jobs: tuple[JobFacts, ...] = ()
    budgets: tuple[BudgetFacts, ...] = ()
    silent: tuple[SilentProvider, ...] = ()
    strays: frozenset[str] = frozenset()
    overdue: Mapping[str, float] = field(default_factory=dict)
    studies: tuple[StudyFacts, ...] = ()
    limits: tuple[LimitFacts, ...] = ()
