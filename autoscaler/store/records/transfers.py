"""Billing of the transfers that the agent of an instance reports.

Not every heartbeat adds a line to the ledger: transfers are billed once they cost at least
`BOOKED_FROM_USD`, and when the instance moves to another job or ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.domain.transfer import Transfer, TransferCount

BOOKED_FROM_USD: Final = Decimal("0.001")


@dataclass(frozen=True, slots=True)
class Lined:
    """An instance, and the ledger lines to write with it."""

    held: HeldInstance
    new_lines: tuple[LedgerEntry, ...] = ()


def transferred(
    held: HeldInstance, count: TransferCount, job: str | None, now_seconds: float
) -> Lined:
    """Return the instance after its agent reported a total of transfers.

    `job` is the job that the agent worked for, None the current job. The job that holds the
    instance pays, except for transfers that the agent reports for the previous job. Transfers
    reported after the end of the instance are billed at once.
    """
    account = held.transfer
    new_transfer = account.news(count)
    if account.is_free or not new_transfer:
        return Lined(held)
    account = account.at(count)
    if job is not None and job == account.before and job != held.job:
        return _billed(replace(held, transfer=account), job, new_transfer, now_seconds)
    account = replace(account, owed=account.owed + new_transfer)
    with_debt = replace(held, transfer=account)
    if account.usd(account.owed) >= BOOKED_FROM_USD or held.phase is InstancePhase.ENDED:
        return settled(with_debt, now_seconds)
    return Lined(with_debt)


def settled(held: HeldInstance, now_seconds: float) -> Lined:
    """Return the instance with a ledger line for all its unbilled transfers, if there are any."""
    account = held.transfer
    if not account.owed:
        return Lined(held)
    without_debt = replace(held, transfer=replace(account, owed=Transfer()))
    return _billed(without_debt, held.job, account.owed, now_seconds)


def is_sighting(before: HeldInstance, lined: Lined) -> bool:
    """Return whether nothing changed but the time of the report and unbilled transfers."""
    after = lined.held
    return not lined.new_lines and before == replace(
        after, seen_seconds=before.seen_seconds, transfer=before.transfer
    )


def line_seconds(now_seconds: float, last_seconds: float | None) -> float:
    """Return the time of a new ledger line: now, but later than the last line of its kind."""
    if last_seconds is None:
        return now_seconds
    return max(now_seconds, math.nextafter(last_seconds, math.inf))


def _billed(held: HeldInstance, job: str, transfer: Transfer, now_seconds: float) -> Lined:
    account = held.transfer
    usd = account.usd(transfer)
    if not usd:
        return Lined(held)
    at_seconds = line_seconds(now_seconds, account.line_seconds)
    line = LedgerEntry(
        kind=EntryKind.TRANSFER,
        instance=held.id,
        job=job,
        offer=held.offer,
        usd_per_hour=Decimal(0),
        at_seconds=at_seconds,
        usd=usd,
        sent_bytes=transfer.sent_bytes,
        fetched_bytes=transfer.fetched_bytes,
    )
    return Lined(replace(held, transfer=replace(account, line_seconds=at_seconds)), (line,))
