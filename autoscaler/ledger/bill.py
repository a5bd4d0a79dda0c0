"""What one instance costs: by the started second, in exact decimals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

from autoscaler.domain.errors import LedgerError
from autoscaler.domain.spending import EntryKind, LedgerEntry

# A price of one second seldom ends in decimals. Every charge is rounded to this, once, so that
# sums of charges are exact whatever they are grouped by.
QUANTUM_USD = Decimal("1e-12")

_SECONDS_PER_HOUR = 3600


def amount(usd_per_hour: Decimal, seconds: float, minimum_billed_seconds: int = 0) -> Decimal:
    """The US dollars that `seconds` of an instance cost, to a multiple of `QUANTUM_USD`."""
    return _usd(usd_per_hour, max(_started(seconds), minimum_billed_seconds))


@dataclass(frozen=True, slots=True)
class Charge:
    """What one instance cost on one day (UTC) at one price: the atom of every total.

    `extras_usd` of `usd` are for what is billed beside the instance. What was sent and fetched is
    a charge of its own, of no seconds, and all of its `usd` are `transfer_usd`.
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
class Stretch:
    """An instance held at one price; `closing` is None while it still is."""

    opening: LedgerEntry
    closing: LedgerEntry | None = None

    @property
    def minimum_billed_seconds(self) -> int:
        """The least that is billed; an instance that never ran is closed with none."""
        return (self.closing or self.opening).minimum_billed_seconds

    def held_seconds(self, now_seconds: float) -> float:
        """How long it has been held."""
        until_seconds = now_seconds if self.closing is None else self.closing.at_seconds
        return max(until_seconds - self.opening.at_seconds, 0.0)


@dataclass(frozen=True, slots=True)
class Bill:
    """All the lines of one instance, in the order of their times.

    The seconds of an instance are counted over all its stretches together, so that a change of
    price starts no second anew, and what a minimum adds is charged at the last price and to the
    last job. The k-th second of a stretch belongs to the day in which it starts, also where a
    minimum puts it after the end or after now: so time alone never changes the figure of a day
    that is over.
    """

    stretches: tuple[Stretch, ...]
    transfers: tuple[LedgerEntry, ...] = ()

    @classmethod
    def of(cls, lines: list[LedgerEntry]) -> Bill:
        """The bill that `lines`, all of one instance, make.

        They are taken in the order of their times; lines of one time in the order given. A CLOSE
        that comes when nothing is open is passed over: the first end stands. A TRANSFER may come
        at any time, before the first OPEN and after the end as well.

        Raises:
            LedgerError: an OPEN while one is open, or a CLOSE before any OPEN.
        """
        stretches: list[Stretch] = []
        transfers: list[LedgerEntry] = []
        for line in sorted(lines, key=lambda line: line.at_seconds):
            if line.kind is EntryKind.TRANSFER:
                transfers.append(line)
                continue
            is_open = bool(stretches) and stretches[-1].closing is None
            if line.kind is EntryKind.OPEN:
                if is_open:
                    raise LedgerError(f"instance {line.instance} is opened twice: {line}")
                stretches.append(Stretch(line))
            elif is_open:
                stretches[-1] = Stretch(stretches[-1].opening, line)
            elif not stretches:
                raise LedgerError(f"instance {line.instance} is closed but never opened: {line}")
        return cls(tuple(stretches), tuple(transfers))

    def charges(self, now_seconds: float) -> Iterator[Charge]:
        """The charges up to `now_seconds`, and at once the minimum that is owed in any case."""
        held_seconds = 0.0
        billed_seconds = 0
        for stretch in self.stretches:
            held_seconds += stretch.held_seconds(now_seconds)
            total_seconds = _started(held_seconds)
            if stretch is self.stretches[-1]:
                total_seconds = max(total_seconds, stretch.minimum_billed_seconds)
            yield from _by_day(stretch.opening, total_seconds - billed_seconds)
            billed_seconds = total_seconds
        yield from self.transferred()

    def transferred(self) -> Iterator[Charge]:
        """Those of them that are for what was sent and fetched."""
        return map(_of_transfer, self.transfers)

    def usd_per_hour(self, now_seconds: float, job: str | None = None) -> Decimal:
        """The price at which money runs at `now_seconds`; 0 once the instance is closed.

        With a `job`, 0 also while it is another's.
        """
        for stretch in self.stretches:
            closing = stretch.closing
            begun = stretch.opening.at_seconds <= now_seconds
            if begun and (closing is None or now_seconds < closing.at_seconds):
                is_asked_for = job in (None, stretch.opening.job)
                return stretch.opening.usd_per_hour if is_asked_for else Decimal(0)
        return Decimal(0)


def _of_transfer(line: LedgerEntry) -> Charge:
    day = datetime.fromtimestamp(line.at_seconds, UTC).date()
    usd = line.usd.quantize(QUANTUM_USD, rounding=ROUND_HALF_EVEN)
    return Charge(line.instance, line.job, line.offer, day, 0, usd, transfer_usd=usd)


def _by_day(opening: LedgerEntry, seconds: int) -> Iterator[Charge]:
    """Cut `seconds` billed seconds at midnights; the parts add up to the whole exactly."""
    done_seconds = 0
    start = datetime.fromtimestamp(opening.at_seconds, UTC)
    day = start.date()
    while done_seconds < seconds:
        midnight = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC)
        before_midnight = _started(midnight.timestamp() - opening.at_seconds)
        upto_seconds = min(seconds, before_midnight)
        if upto_seconds > done_seconds:
            yield Charge(
                opening.instance,
                opening.job,
                opening.offer,
                day,
                upto_seconds - done_seconds,
                _part(opening.usd_per_hour, done_seconds, upto_seconds),
                _part(opening.extras_usd_per_hour, done_seconds, upto_seconds),
            )
        done_seconds = upto_seconds
        day += timedelta(days=1)


def _part(usd_per_hour: Decimal, from_seconds: int, to_seconds: int) -> Decimal:
    """What the seconds between cost; parts that meet add up to the whole exactly."""
    if not usd_per_hour:  # most instances have no extras, and simulations many instances
        return Decimal(0)
    return _usd(usd_per_hour, to_seconds) - _usd(usd_per_hour, from_seconds)


def _usd(usd_per_hour: Decimal, seconds: int) -> Decimal:
    exact = usd_per_hour * seconds / _SECONDS_PER_HOUR
    return exact.quantize(QUANTUM_USD, rounding=ROUND_HALF_EVEN)


def _started(seconds: float) -> int:
    """Seconds begun. Differences of epoch floats are good to a microsecond, and no better."""
    return math.ceil(round(max(seconds, 0.0), 6))
