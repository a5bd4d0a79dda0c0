"""Charges of one instance: billed by started second, in exact decimals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

from autoscaler.domain.errors import LedgerError
from autoscaler.domain.spending import EntryKind, LedgerEntry

# The price of one second is seldom a finite decimal. Every charge is rounded once to a multiple
# of this, so that sums of charges are exact in any grouping.
QUANTUM_USD = Decimal("1e-12")

_SECONDS_PER_HOUR = 3600


def amount(usd_per_hour: Decimal, seconds: float, minimum_billed_seconds: int = 0) -> Decimal:
    """Return the US dollars for `seconds` of an instance, to a multiple of `QUANTUM_USD`."""
    return _usd(usd_per_hour, max(_started_seconds(seconds), minimum_billed_seconds))


@dataclass(frozen=True, slots=True)
class Charge:
    """Cost of one instance on one day (UTC) at one price, the smallest unit of every total.

    `usd` includes `extras_usd`, for resources billed beside the instance, such as disks. Each
    transfer is a separate charge with 0 seconds, whose `usd` equals its `transfer_usd`.
    """

    instance: str
    job: str
    offer: str
    day: date
    seconds: int
    usd: Decimal
    extras_usd: Decimal = Decimal(0)
    transfer_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class PricePeriod:
    """A period in which an instance is held at one price; `closing` is None while it lasts."""

    opening: LedgerEntry
    closing: LedgerEntry | None = None

    @property
    def minimum_billed_seconds(self) -> int:
        """The least seconds billed; 0 in the closing entry of an instance that never ran."""
        return (self.closing or self.opening).minimum_billed_seconds

    def held_seconds(self, now_seconds: float) -> float:
        """Return the seconds from the opening to the closing, or to `now_seconds` if open."""
        until_seconds = now_seconds if self.closing is None else self.closing.at_seconds
        return max(until_seconds - self.opening.at_seconds, 0.0)


@dataclass(frozen=True, slots=True)
class Bill:
    """All ledger entries of one instance, in order of time.

    Seconds are counted over all stretches together, so that a change of price does not start
    another billed second. The rest of a minimum is charged at the last price to the last job. A
    billed second belongs to the day in which it starts, even if a minimum puts it after the end or
    after now. So the figures of a past day never change by the passage of time.
    """

    stretches: tuple[PricePeriod, ...]
    transfers: tuple[LedgerEntry, ...] = ()

    @classmethod
    def of(cls, lines: list[LedgerEntry]) -> Bill:
        """Return the bill of one instance's entries.

        Entries are sorted by time; entries of the same time keep their order. A CLOSE is ignored
        if the instance is already closed: the first end counts. A TRANSFER may have any time, also
        before the first OPEN or after the end.

        Raises:
            LedgerError: an OPEN while the instance is open, or a CLOSE before any OPEN.
        """
        stretches: list[PricePeriod] = []
        transfers: list[LedgerEntry] = []
        for line in sorted(lines, key=lambda line: line.at_seconds):
            if line.kind is EntryKind.TRANSFER:
                transfers.append(line)
                continue
            is_open = bool(stretches) and stretches[-1].closing is None
            if line.kind is EntryKind.OPEN:
                if is_open:
                    raise LedgerError(f"instance {line.instance} is opened twice: {line}")
                stretches.append(PricePeriod(line))
            elif is_open:
                stretches[-1] = PricePeriod(stretches[-1].opening, line)
            elif not stretches:
                raise LedgerError(f"instance {line.instance} is closed but never opened: {line}")
        return cls(tuple(stretches), tuple(transfers))

    def charges(self, now_seconds: float, since: date = date.min) -> Iterator[Charge]:
        """Yield the charges up to `now_seconds`, including the whole minimum from the start.

        Instances are charged from the day `since` on, transfers of any day.
        """
        for opening, seconds, begin_seconds in self._billed(now_seconds):
            yield from _by_day(opening, seconds, begin_seconds, since)
        yield from self.transferred()

    def transferred(self) -> Iterator[Charge]:
        """Return an iterator over the charges for transfers."""
        return map(_transfer_charge, self.transfers)

    def usd_by_job(self, since_seconds: float, now_seconds: float) -> dict[str, Decimal]:
        """Return what each job pays for the seconds from `since_seconds` to `now_seconds`.

        Sums over adjacent spans equal those of `charges` to the last digit.
        """
        usd: dict[str, Decimal] = defaultdict(Decimal)
        for opening, seconds, begin_seconds in self._billed(now_seconds):
            before = _started_seconds(max(since_seconds - begin_seconds, 0.0))
            usd[opening.job] += _usd_between(opening.usd_per_hour, min(before, seconds), seconds)
        for line in self.transfers:
            if line.at_seconds >= since_seconds:
                usd[line.job] += _transfer_usd(line)
        return usd

    def _billed(self, now_seconds: float) -> Iterator[tuple[LedgerEntry, int, float]]:
        """Yield the opening, the billed seconds and the begin of their first for each stretch.

        The first begins when the last second of the stretch before has passed. The last stretch
        has the minimum.
        """
        held_seconds = 0.0
        billed_seconds = 0
        for stretch in self.stretches:
            begin_seconds = stretch.opening.at_seconds + billed_seconds - held_seconds
            held_seconds += stretch.held_seconds(now_seconds)
            total_seconds = _started_seconds(held_seconds)
            if stretch is self.stretches[-1]:
                total_seconds = max(total_seconds, stretch.minimum_billed_seconds)
            yield stretch.opening, total_seconds - billed_seconds, begin_seconds
            billed_seconds = total_seconds

    def usd_per_hour(self, now_seconds: float, job: str | None = None) -> Decimal:
        """Return the hourly price at `now_seconds`; 0 once the instance is closed.

        With a `job`, 0 also while another job holds the instance.
        """
        opening = self.opening_at(now_seconds)
        if opening is None or job not in (None, opening.job):
            return Decimal(0)
        return opening.usd_per_hour

    def opening_at(self, now_seconds: float) -> LedgerEntry | None:
        """Return the line with the price and payer at `now_seconds`; None once it is closed."""
        for stretch in self.stretches:
            closing = stretch.closing
            has_begun = stretch.opening.at_seconds <= now_seconds
            if has_begun and (closing is None or now_seconds < closing.at_seconds):
                return stretch.opening
        return None


def _transfer_charge(line: LedgerEntry) -> Charge:
    day = datetime.fromtimestamp(line.at_seconds, UTC).date()
    usd = _transfer_usd(line)
    return Charge(line.instance, line.job, line.offer, day, 0, usd, transfer_usd=usd)


def _transfer_usd(line: LedgerEntry) -> Decimal:
    return line.usd.quantize(QUANTUM_USD, rounding=ROUND_HALF_EVEN)


def _by_day(
    opening: LedgerEntry, seconds: int, begin_seconds: float, since: date
) -> Iterator[Charge]:
    """Yield charges for the billed seconds from a day on, cut at midnight UTC.

    `begin_seconds` is the time at which the first of them begins. The parts add up to the whole
    exactly.
    """
    charged_seconds = 0
    day = datetime.fromtimestamp(begin_seconds, UTC).date()
    if day < since:
        day = since
        charged_seconds = _seconds_before(day, begin_seconds)
    while charged_seconds < seconds:
        next_day = day + timedelta(days=1)
        end_seconds = min(seconds, _seconds_before(next_day, begin_seconds))
        if end_seconds > charged_seconds:
            yield Charge(
                opening.instance,
                opening.job,
                opening.offer,
                day,
                end_seconds - charged_seconds,
                _usd_between(opening.usd_per_hour, charged_seconds, end_seconds),
                _usd_between(opening.extras_usd_per_hour, charged_seconds, end_seconds),
            )
        charged_seconds = end_seconds
        day = next_day


def _seconds_before(day: date, begin_seconds: float) -> int:
    """Return how many seconds from a time on start before midnight (UTC) of a day."""
    midnight = datetime.combine(day, datetime.min.time(), UTC)
    return _started_seconds(midnight.timestamp() - begin_seconds)


def _usd_between(usd_per_hour: Decimal, from_seconds: int, to_seconds: int) -> Decimal:
    """Return the US dollars for a range of seconds; adjacent ranges add up exactly."""
    if not usd_per_hour:  # a fast path: most instances have no extras
        return Decimal(0)
    return _usd(usd_per_hour, to_seconds) - _usd(usd_per_hour, from_seconds)


def _usd(usd_per_hour: Decimal, seconds: int) -> Decimal:
    exact = usd_per_hour * seconds / _SECONDS_PER_HOUR
    return exact.quantize(QUANTUM_USD, rounding=ROUND_HALF_EVEN)


def _started_seconds(seconds: float) -> int:
    """Return the number of started seconds; differences of epoch floats are exact to 1 µs only."""
    return math.ceil(round(max(seconds, 0.0), 6))
