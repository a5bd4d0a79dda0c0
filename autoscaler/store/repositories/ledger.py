"""Ledger of costs. Lines are written with reports of the cloud, and never changed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Final

from autoscaler.domain.spending import EntryKind, LedgerEntry

# A bill of a second that has started may last up to a second longer than its lines.
PERIOD_MARGIN_SECONDS: Final = 2.0


class LedgerLines(ABC):
    """Read access to the ledger of one store, which the methods of `Instances` write."""

    @abstractmethod
    def after(self, number: int) -> tuple[tuple[LedgerEntry, ...], int]:
        """Return the lines written since a call that returned `number`, and the next number.

        With 0 all lines. Lines are in order of writing.
        """

    @abstractmethod
    def entries(self, job: str | None = None) -> tuple[LedgerEntry, ...]:
        """Return all lines, or all lines of the instances that a job has ever paid for.

        Lines are in order of writing. The lines of a job include payments of other jobs for the
        same instances: the cost of one job follows only from the whole bill.
        """

    @abstractmethod
    def of_jobs(self, jobs: Collection[str]) -> tuple[LedgerEntry, ...]:
        """Return all lines of the instances that any of these jobs has ever paid for.

        Lines are in order of writing. Lines of other instances are not read.
        """

    @abstractmethod
    def of_period(
        self, jobs: Collection[str], from_seconds: float, until_seconds: float
    ) -> tuple[LedgerEntry, ...]:
        """Return all lines of the instances for which any of these jobs has paid in a period.

        The lines of an instance are those of its whole bill. A few instances whose bills end just
        before the period may be among them. Times are seconds since the epoch; `until_seconds` is
        the first that is not of the period.
        """


def may_be_of_period(
    lines: Iterable[LedgerEntry], from_seconds: float, until_seconds: float
) -> bool:
    """Return whether a job may have paid for an instance in a period, by the lines of both."""
    begin_seconds, end_seconds = math.inf, -math.inf
    opened_seconds = closed_seconds = -math.inf
    for line in lines:
        begin_seconds = min(begin_seconds, line.at_seconds)
        end_seconds = max(end_seconds, line.at_seconds + line.minimum_billed_seconds)
        if line.kind is EntryKind.OPEN:
            opened_seconds = max(opened_seconds, line.at_seconds)
        elif line.kind is EntryKind.CLOSE:
            closed_seconds = max(closed_seconds, line.at_seconds)
    is_open = opened_seconds > closed_seconds
    ends_later = is_open or end_seconds >= from_seconds - PERIOD_MARGIN_SECONDS
    return begin_seconds < until_seconds and ends_later
