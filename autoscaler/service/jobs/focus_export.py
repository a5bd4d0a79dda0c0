"""Export of the charges of a period as a CSV file in FOCUS.

The jobs with charges in the period are known from the running sums. Of the ledger, only the bills
of their instances in the period are read, for some jobs at a time.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from autoscaler.controller.controller import ControllerStatus
from autoscaler.domain.access import OWNER
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.ledger.bill import Bill
from autoscaler.ledger.focus import COLUMNS, FocusJob, focus_rows
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.receipt import charge_splits
from autoscaler.service.jobs.receipts import time_facts
from autoscaler.service.jobs.stored_costs import StoredCosts
from autoscaler.store.store import Store

_JOBS_AT_ONCE: Final = 100
_ROWS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class _Period:
    """Days (UTC) of an export, both included, and the time of the export."""

    first: date
    last: date
    now_seconds: float

    @property
    def bounds_seconds(self) -> tuple[float, float]:
        """Seconds since the epoch of its begin, and of the begin of the day after it."""
        days = self.first, self.last + timedelta(days=1)
        begin, end = (datetime.combine(day, datetime.min.time(), UTC).timestamp() for day in days)
        return begin, end


class FocusExport:
    """Builder of exports from the store."""

    def __init__(self, store: Store, status: ControllerStatus, costs: StoredCosts) -> None:
        self._store = store
        self._status = status
        self._costs = costs

    def csv(self, first: date, last: date, now_seconds: float) -> Iterator[str]:
        """Return the text of a CSV file with all charges from `first` to `last` (UTC days).

        Raises:
            SpecError: `first` is after `last`.
        """
        if first > last:
            raise SpecError(f"{first} is after the last day, {last}", "first")
        return _csv(self._rows(_Period(first, last, now_seconds)))

    def _rows(self, period: _Period) -> Iterator[dict[str, str]]:
        """Yield the rows by job, in the order of ids."""
        offers = {offer.id: offer for offer in self._status.offers}
        payers = sorted(self._costs.payers(period.first, period.last))
        for begin in range(0, len(payers), _JOBS_AT_ONCE):
            yield from self._rows_of(payers[begin : begin + _JOBS_AT_ONCE], period, offers)

    def _rows_of(
        self, payers: Collection[str], period: _Period, offers: Mapping[str, Offer]
    ) -> Iterator[dict[str, str]]:
        """Yield the rows of some jobs."""
        store = self._store
        lines = store.ledger.of_period(payers, *period.bounds_seconds)
        bills = _bills_by_payer(Ledger(lines).bills, set(payers), period)
        jobs = store.jobs.of_ids(bills)
        facts = time_facts(store, jobs.values(), period.now_seconds)
        account = store.settings.controller_id()
        for job in sorted(bills):
            splits = charge_splits(job, bills[job], *facts[job], period.now_seconds)
            within = (split for split in splits if period.first <= split.charge.day <= period.last)
            yield from focus_rows(within, _focus_job(jobs[job]), offers, account)


def _bills_by_payer(
    bills: Iterable[Bill], payers: Collection[str], period: _Period
) -> Mapping[str, list[Bill]]:
    """Return the bills with charges of each payer in the period."""
    by_payer: dict[str, list[Bill]] = defaultdict(list)
    for bill in bills:
        charges = bill.charges(period.now_seconds, period.first)
        jobs = {charge.job for charge in charges if period.first <= charge.day <= period.last}
        for payer in jobs.intersection(payers):
            by_payer[payer].append(bill)
    return by_payer


def _focus_job(job: JobRecord) -> FocusJob:
    spec = job.spec
    return FocusJob(job.id, spec.person or OWNER, spec.team, spec.study)


def _csv(rows: Iterable[dict[str, str]]) -> Iterator[str]:
    """Yield the text of a CSV file, some rows at a time."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for number, row in enumerate(rows, start=1):
        writer.writerow(row)
        if number % _ROWS_AT_ONCE == 0:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()
