"""The shortlists of jobs, kept for as long as what they depend on is the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.candidates import costs_in_candidates
from autoscaler.economics.cohorts import Cohort, Likeness, cohort_of
from autoscaler.economics.keeping import Kept
from autoscaler.economics.shortlists import Shortlists, shortlists, stays
from autoscaler.economics.supply import IntArray, Supply
from autoscaler.goodput.throughput import FloatArray

_KEPT_BYTES = 500_000_000


class Remembered:
    """The shortlists of one cohort: `lists` has a row for each job that was looked at last."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self.lists = Shortlists.blank(0, cohort.like.draws)
        self._rows: dict[str, int] = {}
        self._known: dict[str, tuple[JobSnapshot, bool]] = {}

    @property
    def size_bytes(self) -> int:
        """What the lists take."""
        return 2 * self.lists.seconds_per_example.nbytes

    def rows(self, jobs: Sequence[JobSnapshot], supply: Supply, bids: FloatArray) -> IntArray:
        """The row of each job, (J,): what is not known any more, or is new, is made anew."""
        staying = [stays(job, supply) for job in jobs]
        changed = [
            at
            for at, (job, stay) in enumerate(zip(jobs, staying, strict=True))
            if not self._is_known(job, stay)
        ]
        present = {job.id for job in jobs}
        free = [self._rows.pop(job) for job in list(self._rows) if job not in present]
        self._known = {job.id: (job, stay) for job, stay in zip(jobs, staying, strict=True)}
        free.extend(range(len(self._rows) + len(free), self._grown(len(jobs))))
        for job in jobs:
            if job.id not in self._rows:
                self._rows[job.id] = free.pop()
        rows = np.array([self._rows[job.id] for job in jobs], dtype=np.int64)
        anew = shortlists([jobs[at] for at in changed], self.cohort, supply, bids[changed])
        self.lists.put(rows[changed], anew)
        return rows

    def _is_known(self, job: JobSnapshot, stay: bool) -> bool:
        known = self._known.get(job.id)
        return known is not None and known[1] == stay and _is_alike(known[0], job)

    def _grown(self, jobs: int) -> int:
        """Make room for so many; how many there is room for."""
        room = len(self.lists.offer)
        if room >= jobs:
            return room
        longer = Shortlists.blank(jobs, self.cohort.like.draws)
        longer.put(slice(0, room), self.lists)
        self.lists = longer
        return jobs


_KEPT: Kept[Remembered] = Kept(_KEPT_BYTES)


def remembered(job: JobSnapshot, like: Likeness, supply: Supply) -> Remembered:
    """What is remembered of the cohort of a job."""
    found = _KEPT.get(like)
    return Remembered(cohort_of(job, like, supply)) if found is None else found


def keep(some: Remembered) -> None:
    """Remember it."""
    _KEPT.put(some.cohort.like, some, some.size_bytes)


def _is_alike(before: JobSnapshot, now: JobSnapshot) -> bool:
    """Whether all is the same that a job's shortlist depends on, beside its cohort."""
    old, new = before.switching, now.switching
    return (
        before.held == now.held
        and before.noise == now.noise
        and before.held_reclaims_per_hour == now.held_reclaims_per_hour
        and before.objective == now.objective
        and (
            before.models is now.models
            or all(before.models[kind] is model for kind, model in now.models.items())
        )
        and (old is new or costs_in_candidates(old) == costs_in_candidates(new))
    )
