"""The lines of the ledger added up: by instance, job, offer or day, exactly."""

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
    """What was spent, by whom, on what. Sums of any grouping equal the total to the last digit.

    Amounts are US dollars as `Decimal`; round them for display only. Instances that still run
    are charged to `now_seconds`. `bills` are one for each instance.

    Raises:
        LedgerError: the lines of an instance contradict each other.
    """

    def __init__(self, entries: Iterable[LedgerEntry]) -> None:
        lines: dict[str, list[LedgerEntry]] = defaultdict(list)
        for entry in entries:
            lines[entry.instance].append(entry)
        self.bills = tuple(Bill.of(of_instance) for of_instance in lines.values())

    def charges(self, now_seconds: float) -> tuple[Charge, ...]:
        """Every charge: one for each instance, price and day, and one for each transfer."""
        return tuple(charge for bill in self.bills for charge in bill.charges(now_seconds))

    def total(self, now_seconds: float) -> Decimal:
        """All that was spent."""
        return sum((charge.usd for charge in self.charges(now_seconds)), Decimal(0))

    def spent(self, job: str, now_seconds: float) -> Decimal:
        """All that `job` spent; 0 for a job that never held an instance."""
        return self.by_job(now_seconds).get(job, Decimal(0))

    def by_instance(self, now_seconds: float) -> Mapping[str, Decimal]:
        """Spending of each instance."""
        return self.totals(lambda charge: charge.instance, now_seconds)

    def by_job(self, now_seconds: float) -> Mapping[str, Decimal]:
        """Spending of each job."""
        return self.totals(lambda charge: charge.job, now_seconds)

    def by_offer(self, now_seconds: float) -> Mapping[str, Decimal]:
        """Spending on each offer."""
        return self.totals(lambda charge: charge.offer, now_seconds)

    def by_day(self, now_seconds: float) -> Mapping[date, Decimal]:
        """Spending of each day (UTC)."""
        return self.totals(lambda charge: charge.day, now_seconds)

    def daily(self, now_seconds: float) -> tuple[DailyCost, ...]:
        """Spending of each day (UTC) on each offer, in their order, its parts told apart."""
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
        """Spending grouped by `key` of the charges, for example of their (job, day)."""
        sums: dict[Key, Decimal] = defaultdict(Decimal)
        for charge in self.charges(now_seconds):
            sums[key(charge)] += charge.usd
        return dict(sums)

    def transfers(self, key: Callable[[Charge], Key]) -> Mapping[Key, Decimal]:
        """What of it was for jobs' files on their way, likewise grouped; empty where nothing was.

        It does not depend on the time: it is known when it is over.
        """
        sums: dict[Key, Decimal] = defaultdict(Decimal)
        for bill in self.bills:
            for charge in bill.transferred():
                sums[key(charge)] += charge.usd
        return dict(sums)

    def paid_already(self) -> frozenset[str]:
        """The offers of which every instance costs nothing more."""
        prices: dict[str, set[Decimal]] = defaultdict(set)
        for bill in self.bills:
            for stretch in bill.stretches:
                prices[stretch.opening.offer].add(stretch.opening.usd_per_hour)
        return frozenset(offer for offer, found in prices.items() if found == {Decimal(0)})

    def rate_usd_per_hour(self, now_seconds: float, job: str | None = None) -> Decimal:
        """The price of all that runs at `now_seconds` together, or of what `job` holds of it."""
        return sum((bill.usd_per_hour(now_seconds, job) for bill in self.bills), Decimal(0))
