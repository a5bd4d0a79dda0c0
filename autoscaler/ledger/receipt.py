"""Receipt of a job: what its billed seconds and dollars were for.

Each charge of the ledger is divided over the categories in proportion to the use of its instance's
time for the job. Parts add up to the charge exactly. Time whose use no agent has reported is
`CostCategory.UNKNOWN`; nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_DOWN, Decimal
from typing import Final

from autoscaler.domain.time_use import CostCategory, LostWork, TimeCount, TimeUse
from autoscaler.ledger.bill import QUANTUM_USD, Bill, Charge, PricePeriod

Weights = Mapping[CostCategory, float]
"""Seconds by category."""

_KEPT_PRESENT: Final = (CostCategory.BOOT, CostCategory.IDLE)


@dataclass(frozen=True, slots=True)
class TimeRecord:
    """Known use of one instance's time for one job.

    `count` is the last one of its agent; None from agents that do not count. Without it the time
    until the first step at `trained_seconds` is known: all of the time if it `never_trained`.
    """

    count: TimeCount | None = None
    trained_seconds: float | None = None
    never_trained: bool = False


@dataclass(frozen=True, slots=True)
class CategoryCost:
    """Billed seconds and dollars of one category."""

    seconds: float = 0.0
    usd: Decimal = Decimal(0)

    def __add__(self, other: CategoryCost) -> CategoryCost:
        return CategoryCost(self.seconds + other.seconds, self.usd + other.usd)


@dataclass(frozen=True, slots=True)
class CostSplit:
    """Cost and billed seconds, and their parts by category. Absent categories have none."""

    usd: Decimal = Decimal(0)
    billed_seconds: int = 0
    parts: Mapping[CostCategory, CategoryCost] = field(default_factory=dict)

    def __add__(self, other: CostSplit) -> CostSplit:
        categories = [name for name in CostCategory if name in self.parts or name in other.parts]
        return CostSplit(
            self.usd + other.usd,
            self.billed_seconds + other.billed_seconds,
            {name: self.part(name) + other.part(name) for name in categories},
        )

    def part(self, category: CostCategory) -> CategoryCost:
        """Return the part of one category."""
        return self.parts.get(category, CategoryCost())

    @property
    def productive_share(self) -> float | None:
        """Share of the billed seconds that were useful; None if nothing was billed."""
        if not self.billed_seconds:
            return None
        return self.part(CostCategory.USEFUL).seconds / self.billed_seconds


@dataclass(frozen=True, slots=True)
class ChargeSplit:
    """A charge of the ledger, and its parts."""

    charge: Charge
    split: CostSplit


@dataclass(frozen=True, slots=True)
class Receipt:
    """Division of all that a job has cost so far, as a whole and by offer."""

    job: str
    whole: CostSplit
    by_offer: Mapping[str, CostSplit]


def receipt(
    job: str,
    bills: Iterable[Bill],
    records: Mapping[str, TimeRecord],
    lost_work: Sequence[LostWork],
    now_seconds: float,
) -> Receipt:
    """Return the receipt of a job.

    Args:
        job: the id of the job.
        bills: bills of all instances that the job has paid for.
        records: what is known of their time for this job, by instance.
        lost_work: the work that the job made again.
        now_seconds: the time up to which instances that still run are charged.
    """
    whole, by_offer = CostSplit(), dict[str, CostSplit]()
    for part in charge_splits(job, bills, records, lost_work, now_seconds):
        offer = part.charge.offer
        by_offer[offer] = by_offer.get(offer, CostSplit()) + part.split
        whole += part.split
    return Receipt(job, whole, dict(sorted(by_offer.items())))


def charge_splits(
    job: str,
    bills: Iterable[Bill],
    records: Mapping[str, TimeRecord],
    lost_work: Sequence[LostWork],
    now_seconds: float,
) -> Iterator[ChargeSplit]:
    """Yield the charges of a job with their parts; the arguments are those of `receipt`."""
    for bill in bills:
        charges = [charge for charge in bill.charges(now_seconds) if charge.job == job]
        if not charges:
            continue
        record = records.get(charges[0].instance, TimeRecord())
        periods = [period for period in bill.stretches if period.opening.job == job]
        billed_seconds = sum(charge.seconds for charge in charges)
        weights = billed_use(periods, record, lost_work, billed_seconds, now_seconds)
        for charge in charges:
            yield ChargeSplit(charge, _split(charge, weights))


def billed_use(
    periods: Sequence[PricePeriod],
    record: TimeRecord,
    lost_work: Sequence[LostWork],
    billed_seconds: int,
    now_seconds: float,
) -> Weights:
    """Return the billed seconds of an instance for one job by category; they add up.

    Seconds that are billed beyond the time held, of a minimum or a started second, are idle.
    """
    if not periods or not billed_seconds:
        return {CostCategory.UNKNOWN: float(billed_seconds)}
    begin_seconds = periods[0].opening.at_seconds
    held_seconds = sum(period.held_seconds(now_seconds) for period in periods)
    use = held_use(begin_seconds, held_seconds, record, lost_work)
    rest_seconds = billed_seconds - held_seconds
    if rest_seconds < 0:
        return {name: seconds * billed_seconds / held_seconds for name, seconds in use.items()}
    return {**use, CostCategory.IDLE: use.get(CostCategory.IDLE, 0.0) + rest_seconds}


def held_use(
    begin_seconds: float, held_seconds: float, record: TimeRecord, lost_work: Sequence[LostWork]
) -> dict[CostCategory, float]:
    """Return the seconds for which a job held an instance from `begin_seconds`, by category."""
    count = record.count
    if count is None:
        return _use_by_phases(begin_seconds, held_seconds, record)
    before_seconds = min(max(count.begun_seconds - begin_seconds, 0.0), held_seconds)
    left_seconds = held_seconds - before_seconds
    counted_seconds = count.use.total_seconds
    # The clocks of the instance and of the cloud may differ.
    scale = min(left_seconds / counted_seconds, 1.0) if counted_seconds > 0 else 1.0
    use = {name: seconds * scale for name, seconds in by_category(count.use).items()}
    use[CostCategory.BOOT] += before_seconds
    rest = count.present if count.present in _KEPT_PRESENT else CostCategory.UNKNOWN
    use[rest] = use.get(rest, 0.0) + max(left_seconds - counted_seconds * scale, 0.0)
    trained_from_seconds = begin_seconds + use[CostCategory.BOOT]
    lost_seconds = sum(
        _overlap(trained_from_seconds, begin_seconds + held_seconds, work) for work in lost_work
    )
    moved_seconds = min(lost_seconds, use[CostCategory.USEFUL])
    use[CostCategory.USEFUL] -= moved_seconds
    use[CostCategory.LOST] += moved_seconds
    return use


def by_category(use: TimeUse) -> dict[CostCategory, float]:
    """Return the seconds of a use by category."""
    return {
        CostCategory.USEFUL: use.useful_seconds,
        CostCategory.BOOT: use.boot_seconds,
        CostCategory.IDLE: use.idle_seconds,
        CostCategory.PAUSE: use.pause_seconds,
        CostCategory.LOST: use.lost_seconds,
    }


def shared_count(
    leader: TimeCount, begun_seconds: float, trained_seconds: float, until_seconds: float
) -> TimeCount:
    """Return the count of a member that steps together with the `leader` of its gang.

    The time until the first step at `trained_seconds` is the member's own boot. That until
    `until_seconds` has the leader's shares.
    """
    boot_seconds = max(trained_seconds - begun_seconds, 0.0)
    use = replace(leader.use, boot_seconds=0.0)
    left_seconds = max(until_seconds - trained_seconds, 0.0)
    scale = min(left_seconds / use.total_seconds, 1.0) if use.total_seconds > 0 else 0.0
    shared = TimeUse(
        use.useful_seconds * scale,
        boot_seconds,
        use.idle_seconds * scale,
        use.pause_seconds * scale,
        use.lost_seconds * scale,
    )
    return TimeCount(begun_seconds, shared, leader.present)


def _use_by_phases(
    begin_seconds: float, held_seconds: float, record: TimeRecord
) -> dict[CostCategory, float]:
    """Return the use of an instance without a count: only the time until its first step."""
    boot_seconds = 0.0
    if record.never_trained:
        boot_seconds = held_seconds
    elif record.trained_seconds is not None:
        boot_seconds = min(max(record.trained_seconds - begin_seconds, 0.0), held_seconds)
    return {
        CostCategory.BOOT: boot_seconds,
        CostCategory.UNKNOWN: held_seconds - boot_seconds,
    }


def _overlap(from_seconds: float, until_seconds: float, work: LostWork) -> float:
    """Return for how long an instance that trained in a period did work that was lost."""
    begin_seconds = max(from_seconds, work.until_seconds - work.seconds)
    return max(min(until_seconds, work.until_seconds) - begin_seconds, 0.0)


def _split(charge: Charge, weights: Weights) -> CostSplit:
    """Return the parts of a charge; those of an instance's time follow `weights`."""
    if charge.transfer_usd or not charge.seconds:
        part = CategoryCost(0.0, charge.usd)
        return CostSplit(charge.usd, 0, {CostCategory.TRANSFER: part})
    total_seconds = sum(weights.values())
    parts = {
        name: CategoryCost(
            charge.seconds * weight / total_seconds,
            (charge.usd * Decimal(weight / total_seconds)).quantize(
                QUANTUM_USD, rounding=ROUND_DOWN
            ),
        )
        for name, weight in weights.items()
        if weight > 0
    }
    largest = max(parts, key=lambda name: parts[name].seconds)
    missing_usd = charge.usd - sum((part.usd for part in parts.values()), Decimal(0))
    parts[largest] += CategoryCost(0.0, missing_usd)
    return CostSplit(charge.usd, charge.seconds, parts)
