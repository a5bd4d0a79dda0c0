"""What an instance costs while it is held: the lines of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum


class EntryKind(StrEnum):
    """A line opens an instance's bill at a price, or closes it."""

    OPEN = "open"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line. Lines are only ever added; a price that changes closes and opens again.

    `at_seconds` is the cloud's own time of launch or end. `job` is who pays. So much of
    `usd_per_hour` as `extras_usd_per_hour` is for what is billed beside the instance.
    """

    kind: EntryKind
    instance: str
    job: str
    offer: str
    usd_per_hour: Decimal
    at_seconds: float
    minimum_billed_seconds: int = 0
    extras_usd_per_hour: Decimal = Decimal(0)
