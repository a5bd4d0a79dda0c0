"""Costs of instances: entries of the ledger, and lines of the clouds' own bills."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum


class EntryKind(StrEnum):
    """Kind of ledger entry: start or end of an instance's bill, or a transfer of bytes."""

    OPEN = "open"
    CLOSE = "close"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One entry of the append-only ledger. A changed price closes a bill and opens another.

    `at_seconds` is the cloud's time of launch or end. `job` is the paying job.
    `extras_usd_per_hour` is the part of `usd_per_hour` billed beside the instance.

    A TRANSFER entry is an amount `usd` for `sent_bytes` and `fetched_bytes` between the instance
    and the storage of jobs' files. Its `at_seconds` is when the controller received the report.
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
    """Cost of one offer's instances on one day (UTC), by the ledger.

    `usd` includes `extras_usd`, billed beside the instances, and `transfer_usd`, for jobs' files.
    """

    day: date
    offer: str
    usd: Decimal
    extras_usd: Decimal
    transfer_usd: Decimal = Decimal(0)


class BillPart(StrEnum):
    """Category of a cloud's bill line: instances, their extras, or costs not in the ledger."""

    INSTANCES = "instances"
    EXTRAS = "extras"
    BESIDE = "beside"


@dataclass(frozen=True, slots=True)
class AccountCost:
    """Line of a cloud's own bill for one day (UTC); `name` describes the charge.

    `is_estimated`: the cloud has not closed that day's bill yet.
    """

    day: date
    part: BillPart
    name: str
    usd: Decimal
    is_estimated: bool = False
