"""What instances cost: the lines of the ledger, and what the clouds' own bills say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum


class EntryKind(StrEnum):
    """A line opens an instance's bill at a price or closes it, or is for what was sent."""

    OPEN = "open"
    CLOSE = "close"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line. Lines are only ever added; a price that changes closes and opens again.

    `at_seconds` is the cloud's own time of launch or end. `job` is who pays. So much of
    `usd_per_hour` as `extras_usd_per_hour` is for what is billed beside the instance.

    A TRANSFER is an amount of its own, `usd`, for `sent_bytes` and `fetched_bytes` between the
    instance and where jobs keep their files; `at_seconds` is when the controller heard of them.
    """

    kind: EntryKind
    instance: str
    job: str
    offer: str
    usd_per_hour: Decimal
    at_seconds: float
    minimum_billed_seconds: int = 0
    extras_usd_per_hour: Decimal = Decimal(0)
    usd: Decimal = Decimal(0)
    sent_bytes: int = 0
    fetched_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DailyCost:
    """What the instances of one offer cost on one day (UTC), by the ledger.

    `extras_usd` of `usd` are for what is billed beside the instances, and `transfer_usd` for jobs'
    files on their way.
    """

    day: date
    offer: str
    usd: Decimal
    extras_usd: Decimal
    transfer_usd: Decimal = Decimal(0)


class BillPart(StrEnum):
    """What of a cloud's bill the ledger has too: instances, their extras, or nothing."""

    INSTANCES = "instances"
    EXTRAS = "extras"
    BESIDE = "beside"


@dataclass(frozen=True, slots=True)
class AccountCost:
    """A line of a cloud's own bill for one day (UTC); `name` says what for.

    `is_estimated` is the cloud's word for a day whose bill is not closed.
    """

    day: date
    part: BillPart
    name: str
    usd: Decimal
    is_estimated: bool = False
