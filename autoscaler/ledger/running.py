"""Sums of the ledger that are kept up to date from its new lines, exact to the last digit.

The charges of ended bills and of past days are added up once. Each question then prices the open
bills of the present day alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal

from autoscaler.domain.spending import DailyCost, EntryKind, LedgerEntry
from autoscaler.ledger.bill import Bill, Charge


@dataclass(slots=True)
class _Parts:
    """Sums of charges in US dollars: in all, and the parts for extras and transfers."""

    usd: Decimal = Decimal(0)
    extras_usd: Decimal = Decimal(0)
    transfer_usd: Decimal = Decimal(0)


@dataclass(slots=True)
class CostSums:
    """Costs up to one moment, in US dollars.

    Attributes:
        by_job: sums by job.
        days: sums by day (UTC) and offer.
        transfers_by_job: part of `by_job` for transfers of files, of jobs that had some.
        usd_per_hour: price of all instances whose bill is open.
        paid_already: offers whose instances have always cost 0, such as prepaid machines.
    """

    by_job: dict[str, Decimal] = field(default_factory=dict)
    days: dict[tuple[date, str], _Parts] = field(default_factory=dict)
    transfers_by_job: dict[str, Decimal] = field(default_factory=dict)
    usd_per_hour: Decimal = Decimal(0)
    paid_already: frozenset[str] = frozenset()

    def add(self, charge: Charge, sign: int = 1) -> None:
        """Add a charge, or take it off with a `sign` of -1."""
        zero, usd = Decimal(0), charge.usd * sign
        self.by_job[charge.job] = self.by_job.get(charge.job, zero) + usd
        parts = self.days.get((charge.day, charge.offer))
        if parts is None:
            parts = self.days[charge.day, charge.offer] = _Parts()
        parts.usd += usd
        if charge.extras_usd:
            parts.extras_usd += charge.extras_usd * sign
        if charge.transfer_usd:
            parts.transfer_usd += charge.transfer_usd * sign
            known_usd = self.transfers_by_job.get(charge.job, zero)
            self.transfers_by_job[charge.job] = known_usd + charge.transfer_usd * sign

    def copy(self) -> CostSums:
        """Return sums that further charges do not change in these."""
        days = {
            key: _Parts(parts.usd, parts.extras_usd, parts.transfer_usd)
            for key, parts in self.days.items()
        }
        return CostSums(dict(self.by_job), days, dict(self.transfers_by_job))

    @property
    def total_usd(self) -> Decimal:
        """Costs of all jobs."""
        return sum(self.by_job.values(), Decimal(0))

    def by_offer(self) -> Mapping[str, Decimal]:
        """Return the costs by offer."""
        sums: dict[str, Decimal] = defaultdict(Decimal)
        for (_, offer), parts in self.days.items():
            sums[offer] += parts.usd
        return dict(sums)

    def by_day(self) -> Mapping[date, Decimal]:
        """Return the costs by day (UTC)."""
        sums: dict[date, Decimal] = defaultdict(Decimal)
        for (day, _), parts in self.days.items():
            sums[day] += parts.usd
        return dict(sums)

    def daily(self) -> tuple[DailyCost, ...]:
        """Return the costs of each day (UTC) on each offer, sorted by both."""
        return tuple(
            DailyCost(day, offer, parts.usd, parts.extras_usd, parts.transfer_usd)
            for (day, offer), parts in sorted(self.days.items(), key=lambda item: item[0])
        )


class RunningCosts:
    """Costs of all instances from lines of the ledger, which are added as they are written.

    Sums equal those of a `Ledger` of all lines. `number` is that of the last line that was added.
    """

    def __init__(self) -> None:
        self.number = 0
        self._past = CostSums()
        self._days_of_jobs: dict[str, tuple[date, date]] = {}
        self._day = date.min
        self._open: dict[str, list[LedgerEntry]] = {}
        self._bills: dict[str, Bill] = {}
        self._ended: set[str] = set()
        self._prices: dict[str, set[Decimal]] = defaultdict(set)

    def add(self, lines: Iterable[LedgerEntry], number: int) -> bool:
        """Add the lines after `self.number` up to `number`.

        Returns whether that was possible. If not, a bill that had ended goes on, and all lines
        are needed again, from 0.

        Raises:
            LedgerError: the lines of an instance contradict each other.
        """
        lines_of: dict[str, list[LedgerEntry]] = defaultdict(list)
        for line in lines:
            if line.kind is EntryKind.TRANSFER:
                for charge in Bill((), (line,)).transferred():
                    self._add_past(charge)
                continue
            if line.kind is EntryKind.OPEN:
                self._prices[line.offer].add(line.usd_per_hour)
                if line.instance in self._ended:
                    return False
            lines_of[line.instance].append(line)
        for instance, new_lines in lines_of.items():
            if instance not in self._ended:  # its first end counts
                self._extend(instance, new_lines)
        self.number = number
        return True

    def _extend(self, instance: str, new_lines: list[LedgerEntry]) -> None:
        before = self._bills.pop(instance, None)
        if before is not None:
            self._settle(before, sign=-1)
        lines = self._open.pop(instance, []) + new_lines
        bill = Bill.of(lines)
        if bill.stretches[-1].closing is None:
            self._open[instance], self._bills[instance] = lines, bill
            self._settle(bill)
        else:
            self._ended.add(instance)
            for charge in bill.charges(0.0):  # the end bounds each of its stretches, not this time
                self._add_past(charge)

    def _settle(self, bill: Bill, since: date = date.min, sign: int = 1) -> None:
        """Add an open bill's charges from the day `since` to yesterday, or take them off."""
        begin_seconds = _begin_seconds(self._day)
        if bill.stretches[0].opening.at_seconds < begin_seconds:
            for charge in bill.charges(begin_seconds, since):
                if charge.day < self._day:
                    self._add_past(charge, sign)

    def _add_past(self, charge: Charge, sign: int = 1) -> None:
        """Add a charge that the passage of time does not change, or take it off."""
        self._past.add(charge, sign)
        day = charge.day
        first, last = self._days_of_jobs.get(charge.job, (day, day))
        if not first < day < last:
            self._days_of_jobs[charge.job] = min(first, day), max(last, day)

    def payers(self, first: date, last: date) -> frozenset[str]:
        """Return the jobs that may have charges on the days (UTC) from `first` to `last`.

        Jobs with charges before and after these days are among them, and all of open bills.
        """
        days = self._days_of_jobs.items()
        past = (job for job, (begin, end) in days if begin <= last and first <= end)
        return frozenset(past) | {
            stretch.opening.job for bill in self._bills.values() for stretch in bill.stretches
        }

    def sums(self, now_seconds: float) -> CostSums:
        """Return the costs until now."""
        self._begin_day(datetime.fromtimestamp(now_seconds, UTC).date())
        sums = self._past.copy()
        for bill in self._bills.values():
            for charge in bill.charges(now_seconds, self._day):
                sums.add(charge)
        sums.usd_per_hour = self.usd_per_hour(now_seconds)
        sums.paid_already = frozenset(
            offer for offer, prices in self._prices.items() if prices == {Decimal(0)}
        )
        return sums

    def usd_per_hour(self, now_seconds: float) -> Decimal:
        """Return the price of all instances whose bill is open."""
        prices = (bill.usd_per_hour(now_seconds) for bill in self._bills.values())
        return sum(prices, Decimal(0))

    def _begin_day(self, day: date) -> None:
        """Settle the open bills up to the begin of a day."""
        since = self._day
        if day < since:  # the clock was set back
            for bill in self._bills.values():
                self._settle(bill, sign=-1)
            since = date.min
        if day != self._day:
            self._day = day
            for bill in self._bills.values():
                self._settle(bill, since)


def _begin_seconds(day: date) -> float:
    return datetime.combine(day, datetime.min.time(), UTC).timestamp()
