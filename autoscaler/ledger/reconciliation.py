"""The ledger beside a cloud's own bill, day by day.

Clouds tell what a day cost some days later. Until it is settled a day is shown, and is in no sum:
what is missing of it is no difference yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeVar

from autoscaler.domain.spending import AccountCost, BillPart, DailyCost

SETTLED_AFTER_HOURS: Final = 48
TOLERATED_SHARE: Final = Decimal("0.03")
_NEGLIGIBLE_USD: Final = Decimal("0.01")

Cost = TypeVar("Cost", DailyCost, AccountCost)


class Verdict(StrEnum):
    """What the settled days say of the instances."""

    AGREE = "agree"
    ACCOUNT_HAS_MORE = "account has more"
    LEDGER_HAS_MORE = "ledger has more"
    ACCOUNT_HAS_NOTHING = "account has nothing"
    NOTHING_SETTLED = "nothing settled"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two figures of the same, in US dollars.

    `difference_usd` is the account's less the ledger's, `share` of the ledger's; None of nothing.
    """

    ledger_usd: Decimal
    account_usd: Decimal
    difference_usd: Decimal
    share: Decimal | None

    @classmethod
    def of(cls, ledger_usd: Decimal, account_usd: Decimal) -> Comparison:
        """The comparison of these."""
        difference_usd = account_usd - ledger_usd
        share = difference_usd / ledger_usd if ledger_usd else None
        return cls(ledger_usd, account_usd, difference_usd, share)


@dataclass(frozen=True, slots=True)
class DayReconciled:
    """One day; `beside_usd` is what the account has and the ledger does not know."""

    day: date
    instances: Comparison
    extras: Comparison
    beside_usd: Decimal
    is_settled: bool
    is_estimated: bool


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """All days of a period that either knows, and the sums of those that are settled.

    `beside_usd` is by what it was for. `transfer_usd` is the ledger's for jobs' files on their
    way, which the account has beside the instances, too, among all else that was sent.
    """

    days: tuple[DayReconciled, ...]
    instances: Comparison
    extras: Comparison
    beside_usd: Mapping[str, Decimal]
    transfer_usd: Decimal
    verdict: Verdict


def reconcile(
    ledger: Iterable[DailyCost], account: Iterable[AccountCost], now_seconds: float
) -> Reconciliation:
    """Compare what both say of the same days and the same instances.

    Args:
        ledger: what the ledger has of instances in that account.
        account: what the account has of this deployment, for the same days.
        now_seconds: since the Unix epoch; days that ended too short before are not settled.
    """
    own, bill = _by_day(ledger), _by_day(account)
    settled_before = _first_unsettled(now_seconds)
    days = tuple(
        _day(day, own.get(day, []), bill.get(day, []), day < settled_before)
        for day in sorted({*own, *bill})
    )
    settled = [day for day in days if day.is_settled]
    beside: dict[str, Decimal] = defaultdict(Decimal)
    for day in settled:
        for line in bill.get(day.day, ()):
            if line.part is BillPart.BESIDE:
                beside[line.name] += line.usd
    instances = _sum(day.instances for day in settled)
    has_bill = any(bill.get(day.day) for day in settled)
    return Reconciliation(
        days=days,
        instances=instances,
        extras=_sum(day.extras for day in settled),
        beside_usd=dict(sorted(beside.items(), key=lambda item: (-item[1], item[0]))),
        transfer_usd=sum((_transfer_usd(own.get(day.day, [])) for day in settled), Decimal(0)),
        verdict=_verdict(instances, has_bill) if settled else Verdict.NOTHING_SETTLED,
    )


def _day(
    day: date, own: list[DailyCost], bill: list[AccountCost], is_settled: bool
) -> DayReconciled:
    extras_usd = sum((cost.extras_usd for cost in own), Decimal(0))
    # Nobody bills transfer with the instances: in the account it is among what is beside them.
    instances_usd = sum((cost.usd for cost in own), Decimal(0)) - extras_usd - _transfer_usd(own)
    billed_usd = dict.fromkeys(BillPart, Decimal(0))
    for line in bill:
        billed_usd[line.part] += line.usd
    return DayReconciled(
        day=day,
        instances=Comparison.of(instances_usd, billed_usd[BillPart.INSTANCES]),
        extras=Comparison.of(extras_usd, billed_usd[BillPart.EXTRAS]),
        beside_usd=billed_usd[BillPart.BESIDE],
        is_settled=is_settled,
        is_estimated=any(line.is_estimated for line in bill),
    )


def _transfer_usd(own: Iterable[DailyCost]) -> Decimal:
    return sum((cost.transfer_usd for cost in own), Decimal(0))


def _verdict(instances: Comparison, has_bill: bool) -> Verdict:
    if not has_bill and instances.ledger_usd > 0:
        return Verdict.ACCOUNT_HAS_NOTHING
    tolerated_usd = max(instances.ledger_usd * TOLERATED_SHARE, _NEGLIGIBLE_USD)
    if abs(instances.difference_usd) <= tolerated_usd:
        return Verdict.AGREE
    is_more = instances.difference_usd > 0
    return Verdict.ACCOUNT_HAS_MORE if is_more else Verdict.LEDGER_HAS_MORE


def _first_unsettled(now_seconds: float) -> date:
    """The day that was going on so many hours ago, or has begun since."""
    now = datetime.fromtimestamp(now_seconds, UTC)
    return (now - timedelta(hours=SETTLED_AFTER_HOURS)).date()


def _sum(parts: Iterable[Comparison]) -> Comparison:
    every = list(parts)
    ledger_usd = sum((part.ledger_usd for part in every), Decimal(0))
    return Comparison.of(ledger_usd, sum((part.account_usd for part in every), Decimal(0)))


def _by_day(costs: Iterable[Cost]) -> dict[date, list[Cost]]:
    found: dict[date, list[Cost]] = defaultdict(list)
    for cost in costs:
        found[cost.day].append(cost)
    return dict(found)
