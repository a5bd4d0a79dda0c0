"""Comparison of the ledger with a cloud's own bill, day by day.

Clouds report the cost of a day some days later. A day that is not settled is listed but not
included in sums, because costs missing from it are not differences yet.
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
TOLERATED_USD: Final = Decimal("0.01")
TOLERANCE_TEXT: Final = f"{TOLERATED_SHARE * 100:.0f} % or ${TOLERATED_USD}"
"""Difference up to which two figures agree: the greater of both."""

Cost = TypeVar("Cost", DailyCost, AccountCost)


class ReconciliationResult(StrEnum):
    """Result of comparing the instance costs of the settled days."""

    AGREE = "agree"
    ACCOUNT_HAS_MORE = "account has more"
    LEDGER_HAS_MORE = "ledger has more"
    ACCOUNT_HAS_NOTHING = "account has nothing"
    NOTHING_SETTLED = "nothing settled"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ledger's and the account's figure for the same costs, in US dollars.

    The command, the pages and the API have the result from `agrees`. `difference_usd` is the
    account's figure minus the ledger's. `share` is the difference divided by the ledger's figure;
    None if the ledger has 0.
    """

    ledger_usd: Decimal
    account_usd: Decimal
    difference_usd: Decimal
    share: Decimal | None

    @classmethod
    def of(cls, ledger_usd: Decimal, account_usd: Decimal) -> Comparison:
        """Return the comparison of two figures."""
        difference_usd = account_usd - ledger_usd
        share = difference_usd / ledger_usd if ledger_usd else None
        return cls(ledger_usd, account_usd, difference_usd, share)

    @property
    def agrees(self) -> bool:
        """Whether the figures differ by no more than is tolerated."""
        tolerated_usd = max(abs(self.ledger_usd) * TOLERATED_SHARE, TOLERATED_USD)
        return abs(self.difference_usd) <= tolerated_usd


@dataclass(frozen=True, slots=True)
class DayReconciled:
    """Comparison for one day; `beside_usd` are costs that only the account has."""

    day: date
    instances: Comparison
    extras: Comparison
    beside_usd: Decimal
    is_settled: bool
    is_estimated: bool


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """All days of a period that the ledger or the account has, and the sums of the settled days.

    `beside_usd` maps each purpose to costs that the ledger does not track. `transfer_usd` is the
    ledger's cost for transfers of jobs' files, which the account reports among other transfers.
    """

    days: tuple[DayReconciled, ...]
    instances: Comparison
    extras: Comparison
    beside_usd: Mapping[str, Decimal]
    transfer_usd: Decimal
    verdict: ReconciliationResult


def reconcile(
    ledger: Iterable[DailyCost], account: Iterable[AccountCost], now_seconds: float
) -> Reconciliation:
    """Compare the costs that the ledger and the account have for the same days and instances.

    Args:
        ledger: the ledger's costs of instances in this account.
        account: the account's costs of this deployment, for the same days.
        now_seconds: the time since the Unix epoch. Days that ended less than
            `SETTLED_AFTER_HOURS` before are not settled.
    """
    ledger_by_day, account_by_day = _by_day(ledger), _by_day(account)
    settled_before = _first_unsettled(now_seconds)
    days = tuple(
        _day(day, ledger_by_day.get(day, []), account_by_day.get(day, []), day < settled_before)
        for day in sorted({*ledger_by_day, *account_by_day})
    )
    settled = [day for day in days if day.is_settled]
    beside_usd: dict[str, Decimal] = defaultdict(Decimal)
    for day in settled:
        for line in account_by_day.get(day.day, ()):
            if line.part is BillPart.BESIDE:
                beside_usd[line.name] += line.usd
    instances = _sum(day.instances for day in settled)
    has_bill = any(account_by_day.get(day.day) for day in settled)
    return Reconciliation(
        days=days,
        instances=instances,
        extras=_sum(day.extras for day in settled),
        beside_usd=dict(sorted(beside_usd.items(), key=lambda item: (-item[1], item[0]))),
        transfer_usd=sum(
            (_transfer_usd(ledger_by_day.get(day.day, [])) for day in settled), Decimal(0)
        ),
        verdict=_verdict(instances, has_bill) if settled else ReconciliationResult.NOTHING_SETTLED,
    )


def _day(
    day: date, ledger_costs: list[DailyCost], account_costs: list[AccountCost], is_settled: bool
) -> DayReconciled:
    extras_usd = sum((cost.extras_usd for cost in ledger_costs), Decimal(0))
    # Clouds bill transfers apart from instances, so the account has them under BillPart.BESIDE.
    instances_usd = (
        sum((cost.usd for cost in ledger_costs), Decimal(0))
        - extras_usd
        - _transfer_usd(ledger_costs)
    )
    billed_usd = dict.fromkeys(BillPart, Decimal(0))
    for line in account_costs:
        billed_usd[line.part] += line.usd
    return DayReconciled(
        day=day,
        instances=Comparison.of(instances_usd, billed_usd[BillPart.INSTANCES]),
        extras=Comparison.of(extras_usd, billed_usd[BillPart.EXTRAS]),
        beside_usd=billed_usd[BillPart.BESIDE],
        is_settled=is_settled,
        is_estimated=any(line.is_estimated for line in account_costs),
    )


def _transfer_usd(ledger_costs: Iterable[DailyCost]) -> Decimal:
    return sum((cost.transfer_usd for cost in ledger_costs), Decimal(0))


def _verdict(instances: Comparison, has_bill: bool) -> ReconciliationResult:
    if not has_bill and instances.ledger_usd > 0:
        return ReconciliationResult.ACCOUNT_HAS_NOTHING
    if instances.agrees:
        return ReconciliationResult.AGREE
    is_more = instances.difference_usd > 0
    return (
        ReconciliationResult.ACCOUNT_HAS_MORE if is_more else ReconciliationResult.LEDGER_HAS_MORE
    )


def _first_unsettled(now_seconds: float) -> date:
    """Return the first day that is not settled: the day `SETTLED_AFTER_HOURS` ago."""
    now = datetime.fromtimestamp(now_seconds, UTC)
    return (now - timedelta(hours=SETTLED_AFTER_HOURS)).date()


def _sum(parts: Iterable[Comparison]) -> Comparison:
    comparisons = list(parts)
    ledger_usd = sum((part.ledger_usd for part in comparisons), Decimal(0))
    return Comparison.of(ledger_usd, sum((part.account_usd for part in comparisons), Decimal(0)))


def _by_day(costs: Iterable[Cost]) -> dict[date, list[Cost]]:
    costs_of_day: dict[date, list[Cost]] = defaultdict(list)
    for cost in costs:
        costs_of_day[cost.day].append(cost)
    return dict(costs_of_day)
