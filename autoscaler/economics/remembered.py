"""The shortlists of jobs, kept for as long as what they depend on is the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.candidates import costs_in_candidates
from autoscaler.economics.cohorts import Cohort, Likeness, cohort_of
from autoscaler.economics.keeping import Kept, Rows
from autoscaler.economics.shortlists import Screening, Shortlists, stays
from autoscaler.economics.speeds import has_same_models, speeds_of
from autoscaler.economics.speeds import keep as keep_speeds
from autoscaler.economics.supply import IntArray, Supply
from autoscaler.goodput.throughput import FloatArray

_KEPT_BYTES = 2_000_000_000
# Jobs that are looked at together.
_BLOCK = 512


class Remembered:
    """The shortlists of one cohort: `lists` has a row for each job that was looked at last."""

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self.lists = Shortlists.blank(0, cohort.like.draws)
        self._rows = Rows()
        self._known: dict[str, JobSnapshot] = {}
        self._stayed: dict[str, bool] = {}

    @property
    def size_bytes(self) -> int:
        """What the lists take."""
        return sum(getattr(self.lists, each.name).nbytes for each in fields(Shortlists))

    def rows(self, jobs: Sequence[JobSnapshot], supply: Supply, bids: FloatArray) -> IntArray:
        """The row of each job, (J,): what is not known any more, or is new, is made anew."""
        staying = [stays(job, supply) for job in jobs]
        changed = [
            at
            for at, (job, stay) in enumerate(zip(jobs, staying, strict=True))
            if not self._is_known(job, stay)
        ]
        names = [job.id for job in jobs]
        rows = self._rows.of(names)
        self.lists = self.lists.with_rows(int(rows.max(initial=-1)) + 1)
        if changed:
            self._known = {}
            self._list(jobs, supply, bids, rows, changed)
        self._known = dict(zip(names, jobs, strict=True))
        self._stayed = dict(zip(names, staying, strict=True))
        return rows

    def _is_known(self, job: JobSnapshot, stay: bool) -> bool:
        known = self._known.get(job.id)
        return known is not None and self._stayed[job.id] == stay and _is_alike(known, job)

    def _list(
        self,
        jobs: Sequence[JobSnapshot],
        supply: Supply,
        bids: FloatArray,
        rows: IntArray,
        changed: Sequence[int],
    ) -> None:
        """Make the lists of those of the jobs that have changed."""
        speeds = speeds_of(self.cohort)
        known = speeds.rows(jobs)
        for start in range(0, len(changed), _BLOCK):
            of = changed[start : start + _BLOCK]
            some = [jobs[at] for at in of]
            block = Screening(some, self.cohort, supply, bids[of], (speeds, known[of]))
            self.lists.put(rows[of], block.shortlists())
        keep_speeds(self.cohort, speeds)


_KEPT: Kept[Remembered] = Kept(_KEPT_BYTES)


def remembered(job: JobSnapshot, like: Likeness, supply: Supply) -> Remembered:
    """What is remembered of the cohort of a job."""
    found = _KEPT.get(_basis(like))
    if found is None or found.cohort.like != like:
        return Remembered(cohort_of(job, like, supply))
    return found


def keep(some: Remembered) -> None:
    """Remember it, in place of the lists of such a cohort on other terms."""
    _KEPT.put(_basis(some.cohort.like), some, some.size_bytes)


def _basis(like: Likeness) -> Hashable:
    return like.instances, like.formulas, like.draws


def _is_alike(before: JobSnapshot, now: JobSnapshot) -> bool:
    """Whether all is the same that a job's shortlist depends on, beside its cohort."""
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
