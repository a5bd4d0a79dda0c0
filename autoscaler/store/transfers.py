"""What becomes of an instance's account when its agent tells what it has sent and fetched.

Not every heartbeat is a line of the ledger: what is owed is booked once it is a sum worth a line,
and when the instance goes to another job or ends.
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
    """An instance, and the lines that are to be written with it."""

    held: HeldInstance
    new_lines: tuple[LedgerEntry, ...] = ()


def transferred(
    held: HeldInstance, count: TransferCount, job: str | None, now_seconds: float
) -> Lined:
    """With what its agent has counted while it worked for `job`; None is whatever job it is.

    The job that holds it pays, but for what is told of its work for the one before. What is told
    after its end is owed at once.
    """
    account = held.transfer
    news = account.news(count)
    if account.is_free or not news:
        return Lined(held)
    account = account.at(count)
    if job is not None and job == account.before and job != held.job:
        return _booked(replace(held, transfer=account), job, news, now_seconds)
    account = replace(account, owed=account.owed + news)
    owing = replace(held, transfer=account)
    if account.usd(account.owed) >= BOOKED_FROM_USD or held.phase is InstancePhase.ENDED:
        return settled(owing, now_seconds)
    return Lined(owing)


def settled(held: HeldInstance, now_seconds: float) -> Lined:
    """With all booked that it owes."""
    account = held.transfer
    if not account.owed:
        return Lined(held)
    clean = replace(held, transfer=replace(account, owed=Transfer()))
    return _booked(clean, held.job, account.owed, now_seconds)


def line_seconds(now_seconds: float, last_seconds: float | None) -> float:
    """When a line is written now: no two lines of a kind have the same time."""
    if last_seconds is None:
        return now_seconds
    return max(now_seconds, math.nextafter(last_seconds, math.inf))


def _booked(held: HeldInstance, job: str, transfer: Transfer, now_seconds: float) -> Lined:
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
