"""Billed time of jobs by purpose, which takes long to compute: a few jobs at each scrape."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from autoscaler.domain.errors import CastorError
from autoscaler.domain.job import JobRecord
from autoscaler.domain.time_use import CostCategory

_log = logging.getLogger(__name__)

USEFUL: Final = CostCategory.USEFUL.value
_FRESH_SECONDS: Final = 60.0
_MOST_AT_ONCE: Final = 50

BilledSeconds = Callable[[JobRecord, float], Mapping[str, float]]
"""Function that returns the billed seconds of a job until a time, by category."""

_Renewed = tuple[float, Mapping[str, float]]


class BilledTimes:
    """Last known billed time of jobs. One thread at a time may use it."""

    def __init__(self, billed_seconds: BilledSeconds) -> None:
        self._billed_seconds = billed_seconds
        self._known: dict[str, _Renewed] = {}

    def renew(self, jobs: Sequence[JobRecord], now_seconds: float) -> None:
        """Compute the times of the jobs whose times are the oldest, and forget all other jobs.

        With 1,000 jobs and a scrape every 15 s, a time is at most 5 minutes old.
        """
        known = {job.id: self._known[job.id] for job in jobs if job.id in self._known}
        stale = [job for job in jobs if not _is_fresh(known.get(job.id), now_seconds)]
        stale.sort(key=lambda job: known[job.id][0] if job.id in known else float("-inf"))
        for job in stale[:_MOST_AT_ONCE]:
            try:
                known[job.id] = now_seconds, self._billed_seconds(job, now_seconds)
            except CastorError as error:
                _log.warning("job %s: %s", job.id, error, extra={"job": job.id})
                known[job.id] = now_seconds, {}
        self._known = known

    def of(self, job: str) -> Mapping[str, float]:
        """Return the billed seconds of a job by category; empty if they are not known yet."""
        return self._known[job][1] if job in self._known else {}


def _is_fresh(known: _Renewed | None, now_seconds: float) -> bool:
    return known is not None and 0.0 <= now_seconds - known[0] < _FRESH_SECONDS
