"""Bytes on their way to where jobs keep their files and from there, as their senders tell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

# No instance gets there in its life; what a job's own code tells may be any number.
MOST_BYTES: Final = 1 << 60
BYTES_PER_GB: Final = 10**9
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Transfer:
    """What went to where jobs keep their files, and what came from there."""

    sent_bytes: int = 0
    fetched_bytes: int = 0

    def __post_init__(self) -> None:
        for count in (self.sent_bytes, self.fetched_bytes):
            if not 0 <= count <= MOST_BYTES:
                raise ValueError(f"{count} bytes are none that were sent or fetched")

    def __add__(self, other: Transfer) -> Transfer:
        return Transfer(
            min(self.sent_bytes + other.sent_bytes, MOST_BYTES),
            min(self.fetched_bytes + other.fetched_bytes, MOST_BYTES),
        )

    def __bool__(self) -> bool:
        return bool(self.sent_bytes or self.fetched_bytes)

    def beyond(self, earlier: Transfer) -> Transfer:
        """What has come since a count stood at `earlier`; nothing where it stood higher."""
        return Transfer(
            max(self.sent_bytes - earlier.sent_bytes, 0),
            max(self.fetched_bytes - earlier.fetched_bytes, 0),
        )

    def most(self, other: Transfer) -> Transfer:
        """The further of two states of one count, each way."""
        return Transfer(
            max(self.sent_bytes, other.sent_bytes),
            max(self.fetched_bytes, other.fetched_bytes),
        )


@dataclass(frozen=True, slots=True)
class MeterReading:
    """All that one meter has counted up to now. No two meters have one name."""

    meter: str
    transfer: Transfer

    def __post_init__(self) -> None:
        if len(self.meter) > _LONGEST_NAME:
            raise ValueError(f"a meter is called {self.meter[:_LONGEST_NAME]}...")


@dataclass(frozen=True, slots=True)
class TransferCount:
    """All that an instance has counted since `begun_seconds`, by its own clock.

    Of two counts the one that was begun later is the newer one, and began from nothing.
    """

    begun_seconds: float
    transfer: Transfer


@dataclass(frozen=True, slots=True)
class TransferAccount:
    """What is known of an instance's transfer; prices are those of its order.

    `told` is how far its count has come. `owed` was told, and is not in the ledger yet. `before`
    is the job that held the instance last, `line_seconds` the time of the last line.
    """

    upload_usd_per_gb: Decimal = Decimal(0)
    download_usd_per_gb: Decimal = Decimal(0)
    told: TransferCount | None = None
    owed: Transfer = Transfer()
    before: str | None = None
    line_seconds: float | None = None

    @property
    def is_free(self) -> bool:
        """No byte costs anything, either way."""
        return not (self.upload_usd_per_gb or self.download_usd_per_gb)

    def usd(self, transfer: Transfer) -> Decimal:
        """What that costs, in US dollars."""
        sent = transfer.sent_bytes * self.upload_usd_per_gb
        return (sent + transfer.fetched_bytes * self.download_usd_per_gb) / BYTES_PER_GB

    def news(self, count: TransferCount) -> Transfer:
        """What of a count was not told before; nothing of one that is late or comes again."""
        if self.told is None or count.begun_seconds > self.told.begun_seconds:
            return count.transfer
        if count.begun_seconds < self.told.begun_seconds:
            return Transfer()
        return count.transfer.beyond(self.told.transfer)

    def at(self, count: TransferCount) -> TransferAccount:
        """With the count told that far, where it has news."""
        if self.told is not None and self.told.begun_seconds == count.begun_seconds:
            further = self.told.transfer.most(count.transfer)
            count = replace(count, transfer=further)
        return replace(self, told=count)


FREE: Final = TransferAccount()
