"""Sums of the ledger's entries by instance, job, offer or day, exact to the last digit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import TypeVar

from autoscaler.domain.spending import DailyCost, LedgerEntry
from autoscaler.ledger.bill import Bill, Charge

Key = TypeVar("Key")


class Ledger:
    """Spending of all instances. Sums of any grouping equal the total to the last digit.

    Amounts are US dollars as `Decimal`; round them for display only. Instances that still run are
    charged up to `now_seconds`. `bills` holds one bill per instance.

    Raises:
        LedgerError: the entries of an instance contradict each other.
    """

    def __init__(self, entries: Iterable[LedgerEntry]) -> None:
        entries_of: dict[str, list[LedgerEntry]] = defaultdict(list)
        for entry in entries:
            entries_of[entry.instance].append(entry)
        self.bills = tuple(Bill.of(instance_entries) for instance_entries in entries_of.values())

    def charges(self, now_seconds: float) -> tuple[Charge, ...]:
        """Return the charges: one per instance, price and day, and one per transfer."""
        return tuple(charge for bill in self.bills for charge in bill.charges(now_seconds))

    def total(self, now_seconds: float) -> Decimal:
        """Return the total spending."""
        return sum((charge.usd for charge in self.charges(now_seconds)), Decimal(0))

    def spent(self, job: str, now_seconds: float) -> Decimal:
        """Return the spending of `job`; 0 for a job that never held an instance."""
        return self.by_job(now_seconds).get(job, Decimal(0))

    def by_instance(self, now_seconds: float) -> Mapping[str, Decimal]:
        """Return the spending of each instance."""
        return self.totals(lambda charge: charge.instance, now_seconds)

    def by_job(self, now_seconds: float) -> Mapping[str, Decimal]:
        """Return the spending of each job."""
        return self.totals(lambda charge: charge.job, now_seconds)

    def by_offer(self, now_seconds: float) -> Mapping[str, Decimal]:
        """Return the spending on each offer."""
        return self.totals(lambda charge: charge.offer, now_seconds)

    def by_day(self, now_seconds: float) -> Mapping[date, Decimal]:
        """Return the spending of each day (UTC)."""
        return self.totals(lambda charge: charge.day, now_seconds)

    def daily(self, now_seconds: float) -> tuple[DailyCost, ...]:
        """Return the spending of each day (UTC) on each offer, sorted by both, in its parts."""
        costs: dict[tuple[date, str], DailyCost] = {}
        for charge in self.charges(now_seconds):
            key = charge.day, charge.offer
            cost = costs.get(key, DailyCost(*key, Decimal(0), Decimal(0)))
            costs[key] = DailyCost(
                *key,
                cost.usd + charge.usd,
                cost.extras_usd + charge.extras_usd,
                cost.transfer_usd + charge.transfer_usd,
            )
        return tuple(costs[key] for key in sorted(costs))

    def totals(self, key: Callable[[Charge], Key], now_seconds: float) -> Mapping[Key, Decimal]:
        """Return the spending grouped by `key` of the charges, for example by (job, day)."""
        sums: dict[Key, Decimal] = defaultdict(Decimal)
        for charge in self.charges(now_seconds):
            sums[key(charge)] += charge.usd
        return dict(sums)

    def transfers(self, key: Callable[[Charge], Key]) -> Mapping[Key, Decimal]:
        """Return the spending on transfers of jobs' files, grouped by `key`.

        Empty without transfers. Transfers are recorded after they end, so no time is needed.
        """
        sums: dict[Key, Decimal] = defaultdict(Decimal)
        for bill in self.bills:
            for charge in bill.transferred():
                sums[key(charge)] += charge.usd
        return dict(sums)

    def paid_already(self) -> frozenset[str]:
        """Return the offers whose instances have always cost 0, such as prepaid machines."""
        prices: dict[str, set[Decimal]] = defaultdict(set)
        for bill in self.bills:
            for stretch in bill.stretches:
                prices[stretch.opening.offer].add(stretch.opening.usd_per_hour)
        return frozenset(
            offer for offer, offer_prices in prices.items() if offer_prices == {Decimal(0)}
        )

    def rate_usd_per_hour(self, now_seconds: float, job: str | None = None) -> Decimal:
        """Return the hourly price of the instances held at `now_seconds`, of all or of one job."""
        return sum((bill.usd_per_hour(now_seconds, job) for bill in self.bills), Decimal(0))

    def is_open(self, job: str) -> bool:
        """Return whether a job pays for an instance whose bill is open, at whatever time."""
        return any(
            stretch.closing is None and stretch.opening.job == job
            for bill in self.bills
            for stretch in bill.stretches[-1:]
        )

    def rates_usd_per_hour(self, now_seconds: float) -> Mapping[str, Decimal]:
        """Return the hourly price of the instances held at `now_seconds`, by job."""
        rates: dict[str, Decimal] = defaultdict(Decimal)
        for bill in self.bills:
            if (opening := bill.opening_at(now_seconds)) is not None:
                rates[opening.job] += opening.usd_per_hour
        return dict(rates)
