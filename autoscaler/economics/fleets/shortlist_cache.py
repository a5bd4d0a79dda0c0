"""Cache of the shortlists of a cohort's jobs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.allocation.candidates import costs_in_candidates
from autoscaler.economics.allocation.cohorts import Cohort, CohortKey, cohort_of
from autoscaler.economics.allocation.speeds import has_same_models, speeds_of
from autoscaler.economics.allocation.speeds import keep as keep_speeds
from autoscaler.economics.fleets.shortlists import Screening, Shortlists, stays
from autoscaler.economics.supply.caches import CacheSection, RowAllocator
from autoscaler.economics.supply.supply import IntArray, Supply
from autoscaler.goodput.throughput import FloatArray

_SECTION: CacheSection[ShortlistCache] = CacheSection(2_000_000_000)
# Number of jobs screened together.
_BLOCK = 512


class ShortlistCache:
    """Cached shortlists of one cohort; `lists` has a row for each current job."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self.lists = Shortlists.blank(0, cohort.like.draws)
        self._rows = RowAllocator()
        self._known: dict[str, JobSnapshot] = {}
        self._was_staying: dict[str, bool] = {}

    @property
    def size_bytes(self) -> int:
        """Size of the lists in bytes."""
        return sum(getattr(self.lists, field.name).nbytes for field in fields(Shortlists))

    def rows(self, jobs: Sequence[JobSnapshot], supply: Supply, bids: FloatArray) -> IntArray:
        """Return the row of each job, (J,), after screening new and changed jobs.

        `bids` are values of time in $ per second, (J,).
        """
        staying = [stays(job, supply) for job in jobs]
        changed = [
            index
            for index, (job, stay) in enumerate(zip(jobs, staying, strict=True))
            if not self._is_known(job, stay)
        ]
        names = [job.id for job in jobs]
        rows = self._rows.of(names)
        self.lists = self.lists.with_rows(int(rows.max(initial=-1)) + 1)
        if changed:
            self._known = {}
            self._screen_changed(jobs, supply, bids, rows, changed)
        self._known = dict(zip(names, jobs, strict=True))
        self._was_staying = dict(zip(names, staying, strict=True))
        return rows

    def _is_known(self, job: JobSnapshot, stay: bool) -> bool:
        known_job = self._known.get(job.id)
        return (
            known_job is not None
            and self._was_staying[job.id] == stay
            and _has_same_inputs(known_job, job)
        )

    def _screen_changed(
        self,
        jobs: Sequence[JobSnapshot],
        supply: Supply,
        bids: FloatArray,
        rows: IntArray,
        changed: Sequence[int],
    ) -> None:
        """Screen the jobs at the indices `changed` and store their lists."""
        speeds = speeds_of(self.cohort, supply.cache)
        speed_rows = speeds.rows(jobs)
        for start in range(0, len(changed), _BLOCK):
            indices = changed[start : start + _BLOCK]
            block_jobs = [jobs[index] for index in indices]
            block = Screening(
                block_jobs, self.cohort, supply, bids[indices], (speeds, speed_rows[indices])
            )
            self.lists.put(rows[indices], block.shortlists())
        keep_speeds(self.cohort, speeds, supply.cache)


def cached_shortlists(job: JobSnapshot, like: CohortKey, supply: Supply) -> ShortlistCache:
    """Return the cached shortlists of a job's cohort, or new empty ones."""
    cached = supply.cache.of(_SECTION).get(_cache_key(like))
    if cached is None or cached.cohort.like != like:
        return ShortlistCache(cohort_of(job, like, supply))
    return cached


def store_shortlists(some: ShortlistCache, supply: Supply) -> None:
    """Cache the shortlists in place of those of the same jobs under other terms."""
    supply.cache.of(_SECTION).put(_cache_key(some.cohort.like), some, some.size_bytes)


def _cache_key(like: CohortKey) -> Hashable:
    return like.instances, like.formulas, like.draws


def _has_same_inputs(before: JobSnapshot, now: JobSnapshot) -> bool:
    """Return whether nothing that a job's shortlist depends on has changed."""
    old, new = before.switching, now.switching
    return (
        before.held == now.held
        and before.noise == now.noise
        and before.batch == now.batch
        and before.held_reclaims_per_hour == now.held_reclaims_per_hour
        and before.objective == now.objective
        and has_same_models(before, now)
        and (old is new or costs_in_candidates(old) == costs_in_candidates(new))
    )
