"""Numbers of concurrent jobs in the past, for fair shares of a pool."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.job import JobRecord


class ConcurrencyHistory:
    """Numbers of concurrent jobs until `now_seconds`."""

    def __init__(self, jobs: Collection[JobRecord], now_seconds: float) -> None:
        self._jobs, self._now_seconds = jobs, now_seconds

    @cached_property
    def _begun(self) -> NDArray[np.float64]:
        return _sorted(job.submitted_seconds for job in self._jobs)

    @cached_property
    def _ended(self) -> NDArray[np.float64]:
        ended = (job.ended_seconds for job in self._jobs)
        return _sorted(seconds for seconds in ended if seconds is not None)

    def mean_jobs(self, since_seconds: float) -> float:
        """Return the mean number of concurrent jobs since `since_seconds`, at least 1."""
        lasted_seconds = self._now_seconds - since_seconds
        if lasted_seconds <= 0:
            begun_count = self._begun.searchsorted(self._now_seconds, "right")
            return max(
                float(begun_count - self._ended.searchsorted(self._now_seconds, "right")), 1.0
            )
        job_seconds = self._job_seconds(self._now_seconds) - self._job_seconds(since_seconds)
        return max(job_seconds / lasted_seconds, 1.0)

    def _job_seconds(self, until_seconds: float) -> float:
        """Return the sum of all jobs' lifetimes up to `until_seconds`."""
        begun = np.maximum(until_seconds - self._begun, 0.0).sum()
        return float(begun - np.maximum(until_seconds - self._ended, 0.0).sum())


def _sorted(moments: Iterable[float]) -> NDArray[np.float64]:
    return np.sort(np.fromiter(moments, dtype=np.float64))
