"""Counts of bytes sent to and fetched from the storage of jobs' files, as senders report them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

# More than an instance ever transfers; reports of a job's own code may contain any number.
MOST_BYTES: Final = 1 << 60
BYTES_PER_GB: Final = 10**9
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes sent to the storage of jobs' files, and bytes fetched from it."""

    sent_bytes: int = 0
    fetched_bytes: int = 0

    def __post_init__(self) -> None:
        for count in (self.sent_bytes, self.fetched_bytes):
            if not 0 <= count <= MOST_BYTES:
                raise ValueError(f"{count} bytes is not a count from 0 to {MOST_BYTES}")

    def __add__(self, other: Transfer) -> Transfer:
        return Transfer(
            min(self.sent_bytes + other.sent_bytes, MOST_BYTES),
            min(self.fetched_bytes + other.fetched_bytes, MOST_BYTES),
        )

    def __bool__(self) -> bool:
        return bool(self.sent_bytes or self.fetched_bytes)

    def beyond(self, earlier: Transfer) -> Transfer:
        """Return the bytes since the count `earlier`, at least 0 in each direction."""
        return Transfer(
            max(self.sent_bytes - earlier.sent_bytes, 0),
            max(self.fetched_bytes - earlier.fetched_bytes, 0),
        )

    def most(self, other: Transfer) -> Transfer:
        """Return the larger of two counts, in each direction."""
        return Transfer(
            max(self.sent_bytes, other.sent_bytes),
            max(self.fetched_bytes, other.fetched_bytes),
        )


@dataclass(frozen=True, slots=True)
class MeterReading:
    """Total count of one meter so far. Meter names are unique."""

    meter: str
    transfer: Transfer

    def __post_init__(self) -> None:
        if len(self.meter) > _LONGEST_NAME:
            raise ValueError(
                f"meter name {self.meter[:_LONGEST_NAME]}... exceeds {_LONGEST_NAME} characters"
            )


@dataclass(frozen=True, slots=True)
class TransferCount:
    """Total count of an instance since `begun_seconds`, by its own clock.

    Each count begins at 0. The count that began later is the newer one.
    """

    begun_seconds: float
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class TransferAccount:
    """Record of an instance's transfers, at the prices of its order.

    `told` is the last reported count. `owed` was reported and is not in the ledger yet. `before`
    is the job that held the instance last. `line_seconds` is the time of the last ledger entry.
    """

    upload_usd_per_gb: Decimal = Decimal(0)
    download_usd_per_gb: Decimal = Decimal(0)
    told: TransferCount | None = None
    owed: Transfer = Transfer()
    before: str | None = None
    line_seconds: float | None = None

    @property
    def is_free(self) -> bool:
        """Whether both directions cost nothing."""
        return not (self.upload_usd_per_gb or self.download_usd_per_gb)

    def usd(self, transfer: Transfer) -> Decimal:
        """Return the price of a transfer in US dollars."""
        sent = transfer.sent_bytes * self.upload_usd_per_gb
        return (sent + transfer.fetched_bytes * self.download_usd_per_gb) / BYTES_PER_GB

    def news(self, count: TransferCount) -> Transfer:
        """Return the unreported part of a count; nothing if the count is late or repeated."""
        if self.told is None or count.begun_seconds > self.told.begun_seconds:
            return count.transfer
        if count.begun_seconds < self.told.begun_seconds:
            return Transfer()
        return count.transfer.beyond(self.told.transfer)

    def at(self, count: TransferCount) -> TransferAccount:
        """Return the account with a new count recorded, if the count is newer."""
        if self.told is not None and self.told.begun_seconds == count.begun_seconds:
            furthest = self.told.transfer.most(count.transfer)
            count = replace(count, transfer=furthest)
        return replace(self, told=count)


FREE: Final = TransferAccount()
