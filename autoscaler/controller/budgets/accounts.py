"""Spending of each budget in its period, kept up to date from the new lines of the ledger.

A tick reads only the lines written since the last one, and prices the bills that are open. The
whole ledger is read after a start, and when a budget or a month is new.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from autoscaler.controller.budgets.leave_limits import last_saves_usd, usual_seconds
from autoscaler.controller.budgets.spending import cost_usd
from autoscaler.domain.access import Owner
from autoscaler.domain.budget import (
    ALL_TIME,
    Budget,
    BudgetBasis,
    BudgetPeriod,
    BudgetRoom,
    BudgetScope,
    BudgetState,
    moment_text,
    month_name,
)
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.ledger.bill import Bill
from autoscaler.store.store import Store

# Open bills are priced again this often, or when a line is new; in between their prices are added.
_PRICED_SECONDS = 30.0
# Share of a month by which spending may be ahead of an even pace.
_AHEAD_SHARE = 0.1
# Clouds bill at least a minute of an instance.
_LEAST_RESERVE_SECONDS = 60.0
_HOUR = Decimal(3600)
# Before this the month so far says nothing about its rest.
TELLING_SECONDS: Final = 86_400.0

_Key = tuple[BudgetScope, float]


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """Spending of a budget's jobs at one time, in US dollars.

    Attributes:
        budget: the limits.
        month: present month of the budget.
        month_usd: cost of the jobs in this month so far; 0 without a limit for months.
        total_usd: cost of the jobs since the first instance; 0 without a limit for it.
        usd_per_hour: price of the instances that the jobs hold.
        reserve_usd: cost of leaving these instances, which is kept for that.
        month_reserve_usd: part of it that falls into this month.
        latched: limit that was used up before in its period: with it all jobs have left, and what
            was kept for that would not pay a new start.
    """

    budget: Budget
    month: BudgetPeriod
    month_usd: Decimal
    total_usd: Decimal
    usd_per_hour: Decimal
    reserve_usd: Decimal
    month_reserve_usd: Decimal
    latched: BudgetBasis | None = None

    def left_usd(self) -> list[tuple[BudgetBasis, Decimal, BudgetPeriod]]:
        """Return what is left of each limit in dollars, beside the reserve, with its period."""
        budget, left = self.budget, []
        if budget.month_usd is not None:
            unspent_usd = budget.month_usd - self.month_usd - self.month_reserve_usd
            left.append((BudgetBasis.MONTH, unspent_usd, self.month))
        if budget.total_usd is not None:
            unspent_usd = budget.total_usd - self.total_usd - self.reserve_usd
            left.append((BudgetBasis.TOTAL, unspent_usd, ALL_TIME))
        return left

    @property
    def used_up(self) -> tuple[BudgetBasis, BudgetPeriod] | None:
        """The limit of which nothing is left, and its period; None: something is left of all."""
        return next(
            (
                (basis, period)
                for basis, usd, period in self.left_usd()
                if usd <= 0 or basis is self.latched
            ),
            None,
        )

    def pace_usd_per_hour(self, now_seconds: float) -> float | None:
        """Return the price at which the rest of the month lasts; None without such a limit."""
        if self.budget.month_usd is None:
            return None
        left_usd = max(float(self.budget.month_usd - self.month_usd - self.month_reserve_usd), 0.0)
        return left_usd / max(self.month.end_seconds - now_seconds, 1.0) * 3600.0

    def expected_usd(
        self, planned_usd: float | None, now_seconds: float
    ) -> tuple[float, float] | None:
        """Return the ends of what the present month will cost, beyond its limit too.

        One end is `planned_usd`, what the present jobs will spend in the rest of the month, the
        other the month's spending so far, continued. Before a day of the month has passed, or if
        `planned_usd` is None, the other one stands alone. None without a limit for months.
        """
        if self.budget.month_usd is None:
            return None
        spent_usd = float(self.month_usd)
        elapsed_seconds = max(now_seconds - self.month.start_seconds, 1.0)
        rest_usd = [] if planned_usd is None else [planned_usd]
        if elapsed_seconds >= TELLING_SECONDS or planned_usd is None:
            left_seconds = max(self.month.end_seconds - now_seconds, 0.0)
            rest_usd.append(spent_usd / elapsed_seconds * left_seconds)
        ends = [spent_usd + usd for usd in rest_usd]
        return min(ends), max(ends)

    def rooms(self, now_seconds: float) -> tuple[BudgetRoom, ...]:
        """Return what the jobs may spend from now on.

        Spending may be ahead of an even pace through the month by `_AHEAD_SHARE` of it. Beyond
        that, instances cost at most what is left, evenly spread over the rest of the month.
        """
        rooms: list[BudgetRoom] = []
        for basis, usd, period in self.left_usd():
            seconds = period.end_seconds - now_seconds
            left_usd = float(max(usd, Decimal(0)))
            rooms.append(BudgetRoom(basis, left_usd, seconds))
            if basis is BudgetBasis.MONTH and self.budget.month_usd is not None:
                ahead_seconds = min(_AHEAD_SHARE * period.seconds, seconds)
                elapsed = now_seconds + ahead_seconds - period.start_seconds
                even_usd = float(self.budget.month_usd) * elapsed / period.seconds
                spent_usd = float(self.month_usd + self.month_reserve_usd)
                ahead_usd = max(even_usd - spent_usd, 0.0)
                pace = left_usd / seconds * 3600.0
                rooms.append(BudgetRoom(BudgetBasis.PACE, ahead_usd, ahead_seconds, pace))
        if self.budget.hourly_usd is not None:
            hourly_usd = float(self.budget.hourly_usd)
            rooms.append(BudgetRoom(BudgetBasis.HOUR, 0.0, 3600.0, hourly_usd))
        return tuple(rooms)

    def state(self, now_seconds: float) -> BudgetState:
        """Return the state of the budget as a policy knows it."""
        scope = self.budget.scope
        used_up = self.used_up
        return BudgetState(
            scope=str(scope),
            words=scope.words,
            rooms=self.rooms(now_seconds),
            used_up=None if used_up is None else self._used_up_text(*used_up),
        )

    def _used_up_text(self, basis: BudgetBasis, period: BudgetPeriod) -> str:
        budget, way_out = self.budget, f"castor budget set {self.budget.scope} raises it"
        if basis is BudgetBasis.MONTH:
            month = month_name(period, budget.zone)
            until = moment_text(period.end_seconds, budget.zone)
            return (
                f"the budget of {budget.scope.words} of ${budget.month_usd} for {month} is used "
                f"up: waits until {until}; {way_out}"
            )
        limit = f"of ${budget.total_usd} in all"
        return f"the budget of {budget.scope.words} {limit} is used up: {way_out}"


@dataclass(slots=True)
class _Sums:
    """Costs by budget and start of its period, in US dollars.

    `closed` are those of bills that have ended. `open_usd` are those of all others at
    `priced_seconds`, and `open_usd_per_hour` their prices.
    """

    closed: dict[_Key, Decimal] = field(default_factory=dict)
    open_usd: dict[_Key, Decimal] = field(default_factory=dict)
    open_usd_per_hour: dict[_Key, Decimal] = field(default_factory=dict)
    priced_seconds: float = -math.inf

    def usd(self, key: _Key, now_seconds: float) -> Decimal:
        """Return the cost of one budget since the start of a period."""
        hours = Decimal(max(now_seconds - self.priced_seconds, 0.0)) / _HOUR
        return self.closed[key] + self.open_usd[key] + self.open_usd_per_hour[key] * hours


class BudgetAccounts:
    """Standings of all budgets. Threads may share it.

    `replan_seconds` is the longest time until a used-up budget is noticed.
    """

    def __init__(self, store: Store, replan_seconds: float) -> None:
        self._store = store
        self._replan_seconds = replan_seconds
        self._lock = threading.Lock()
        self._number = 0
        self._lines: dict[str, list[LedgerEntry]] = {}
        self._bills: dict[str, Bill] = {}
        self._sums = _Sums()
        self._owners: dict[str, tuple[Owner, str | None]] = {}
        self._latched: dict[BudgetScope, tuple[Budget, BudgetPeriod, BudgetBasis]] = {}
        self.latest: tuple[BudgetStanding, ...] = ()

    def update(
        self, jobs: Sequence[JobRecord], held: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[BudgetStanding, ...]:
        """Return the standings, sorted by scope, and keep them as `latest`.

        `jobs` have not ended; `held` are all instances that cost money.
        """
        self.latest = self.standings(jobs, held, now_seconds)
        used_up = ((standing, standing.used_up) for standing in self.latest)
        self._latched = {
            standing.budget.scope: (standing.budget, standing.month, limit[0])
            for standing, limit in used_up
            if limit is not None
        }
        return self.latest

    def standings(
        self, jobs: Sequence[JobRecord], held: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[BudgetStanding, ...]:
        """Return the standings as `update`, without keeping them."""
        budgets = self._store.budgets.all()
        if not budgets:
            return ()
        with self._lock:
            self._owners |= {job.id: (job.spec.owner, job.spec.study) for job in jobs}
            keys = {key for budget in budgets for key in _keys(budget, now_seconds)}
            self._sync(keys, held, now_seconds)
            return tuple(self._standing(budget, jobs, held, now_seconds) for budget in budgets)

    def scopes(self, job: JobRecord) -> tuple[str, ...]:
        """Return the scopes of the latest budgets that cover a job."""
        owner, study = job.spec.owner, job.spec.study
        scopes = (standing.budget.scope for standing in self.latest)
        return tuple(str(scope) for scope in scopes if scope.covers(owner, study))

    def used_up(self, job: JobRecord, now_seconds: float) -> str | None:
        """Return why a job must hold nothing by the latest standings; None if it may hold."""
        owner, study = job.spec.owner, job.spec.study
        for standing in self.latest:
            if standing.used_up is not None and standing.budget.scope.covers(owner, study):
                return standing.state(now_seconds).used_up
        return None

    def _standing(
        self,
        budget: Budget,
        jobs: Sequence[JobRecord],
        held: Sequence[HeldInstance],
        now_seconds: float,
    ) -> BudgetStanding:
        scope, sums = budget.scope, self._sums
        month, total = _keys(budget, now_seconds)
        members = [job for job in jobs if scope.covers(*self._owner(job.id))]
        instances = [instance for instance in held if scope.covers(*self._owner(instance.job))]
        leaving_seconds = max(map(usual_seconds, members), default=0.0) + self._replan_seconds
        leaving_seconds = max(leaving_seconds, _LEAST_RESERVE_SECONDS)
        period, saves_usd = budget.month(now_seconds), last_saves_usd(members, instances)
        left_seconds = min(leaving_seconds, period.end_seconds - now_seconds)
        return BudgetStanding(
            budget=budget,
            month=period,
            month_usd=sums.usd(month, now_seconds) if budget.month_usd is not None else Decimal(0),
            total_usd=sums.usd(total, now_seconds) if budget.total_usd is not None else Decimal(0),
            usd_per_hour=sum((held.costing_usd_per_hour for held in instances), Decimal(0)),
            reserve_usd=cost_usd(instances, leaving_seconds) + saves_usd,
            month_reserve_usd=cost_usd(instances, left_seconds) + saves_usd,
            latched=self._latched_basis(budget, period),
        )

    def _latched_basis(self, budget: Budget, month: BudgetPeriod) -> BudgetBasis | None:
        """Return the limit that was used up before, if neither it nor its month has changed."""
        known, at_month, basis = self._latched.get(budget.scope, (None, month, None))
        is_over = basis is BudgetBasis.MONTH and at_month != month
        return basis if known == budget and not is_over else None

    def _owner(self, job: str) -> tuple[Owner, str | None]:
        if job not in self._owners:
            spec = self._store.jobs.get(job).spec
            self._owners[job] = spec.owner, spec.study
        return self._owners[job]

    def _sync(
        self, keys: Collection[_Key], held: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Read new lines of the ledger, and price the open bills if it is time."""
        sums = self._sums
        if not set(keys) <= sums.closed.keys():
            self._number, self._lines, self._bills = 0, {}, {}
            self._sums = sums = _Sums(closed=dict.fromkeys(keys, Decimal(0)))
            self._owners |= {
                job.id: (job.spec.owner, job.spec.study) for job in self._store.jobs.all()
            }
        alive = {instance.id for instance in held}
        lines, self._number = self._store.ledger.after(self._number)
        for line in lines:
            known = self._lines.setdefault(line.instance, [])
            if line.kind is not EntryKind.CLOSE or known:  # the first end counts
                known.append(line)
                self._bills.pop(line.instance, None)
        is_old = not 0.0 <= now_seconds - sums.priced_seconds < _PRICED_SECONDS
        if lines or is_old:
            self._close_bills(alive, now_seconds)
            self._price(now_seconds)

    def _close_bills(self, alive: Collection[str], now_seconds: float) -> None:
        """Add the bills of ended instances to the sums, and drop their lines."""
        ended = [
            instance
            for instance, lines in self._lines.items()
            if instance not in alive and _is_closed(lines)
        ]
        bills = [Bill.of(self._lines.pop(instance)) for instance in ended]
        for instance in ended:
            self._bills.pop(instance, None)
        for key in self._sums.closed:
            self._sums.closed[key] += self._usd(bills, key, now_seconds)

    def _price(self, now_seconds: float) -> None:
        for instance, lines in self._lines.items():
            if lines and instance not in self._bills:
                self._bills[instance] = Bill.of(lines)
        bills = list(self._bills.values())
        sums = self._sums
        for key in sums.closed:
            scope = key[0]
            sums.open_usd[key] = self._usd(bills, key, now_seconds)
            sums.open_usd_per_hour[key] = sum(
                (
                    bill.usd_per_hour(now_seconds)
                    for bill in bills
                    if bill.stretches
                    and scope.covers(*self._owner(bill.stretches[-1].opening.job))
                ),
                Decimal(0),
            )
        sums.priced_seconds = now_seconds

    def _usd(self, bills: Iterable[Bill], key: _Key, now_seconds: float) -> Decimal:
        """Return the cost of some bills for one budget, from the start of its period."""
        scope, start_seconds = key
        return sum(
            (
                usd
                for bill in bills
                for job, usd in bill.usd_by_job(start_seconds, now_seconds).items()
                if scope.covers(*self._owner(job))
            ),
            Decimal(0),
        )


def _keys(budget: Budget, now_seconds: float) -> tuple[_Key, _Key]:
    """Return the keys of a budget's sums: of the present month, and of all time."""
    start_seconds = budget.month(now_seconds).start_seconds
    return (budget.scope, start_seconds), (budget.scope, ALL_TIME.start_seconds)


def _is_closed(lines: Sequence[LedgerEntry]) -> bool:
    ends = [line.kind for line in lines if line.kind is not EntryKind.TRANSFER]
    return not ends or ends[-1] is EntryKind.CLOSE
