"""Studies as a policy sees them, put together from the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from autoscaler.controller.lingering import Lingering
from autoscaler.controller.step_times import own_step_times
from autoscaler.controller.study_spending import StudySpending
from autoscaler.controller.troubles import Troubles
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import FreeInstance, StudySnapshot
from autoscaler.domain.terms import TrialRecord
from autoscaler.store.store import Store

# What more siblings than that could teach is not worth what it takes to learn it.
_MOST_TRIALS = 300


class StudySnapshots:
    """Takes snapshots of studies."""

    def __init__(
        self,
        store: Store,
        lingering: Lingering,
        spending: StudySpending,
        troubles: Troubles,
    ) -> None:
        self._store = store
        self._lingering = lingering
        self._spending = spending
        self._troubles = troubles
        self._steps_of_ended: dict[str, tuple[StepObservation, ...]] = {}

    def take(
        self,
        jobs: Sequence[JobRecord],
        alive: Sequence[HeldInstance],
        offers: Sequence[Offer],
        now_seconds: float,
    ) -> tuple[StudySnapshot, ...]:
        """Return the studies of these jobs whose terms were stated; `alive` are all instances.

        One that can't be told of is left out, and is in trouble.
        """
        names = sorted({job.spec.study for job in jobs if job.spec.study is not None})
        of_all = self._store.jobs.alive() if names else ()
        least_billed = {offer.id: float(offer.minimum_billed_seconds) for offer in offers}
        taken = (
            self._troubles.attempt(
                name,
                "record",
                partial(self._taken, name, of_all, alive, least_billed, now_seconds),
            )
            for name in names
        )
        return tuple(each for each in taken if each is not None)

    @property
    def in_trouble(self) -> Collection[str]:
        """The studies that can't be told of, or whose budget can't be kept."""
        return self._troubles.by_subject().keys()

    def _taken(
        self,
        name: str,
        jobs: Sequence[JobRecord],
        alive: Sequence[HeldInstance],
        least_billed: Mapping[str, float],
        now_seconds: float,
    ) -> StudySnapshot | None:
        """One study; None before its terms were stated. `jobs` are all that have not ended."""
        terms = self._store.studies.terms(name)
        if terms is None:
            return None
        not_ended = {job.id for job in jobs}
        records = self._store.studies.trials(name)[-_MOST_TRIALS:]
        return StudySnapshot(
            name=name,
            terms=terms,
            trials=tuple(_as_it_is(record, not_ended) for record in records),
            free=self._free(name, alive, least_billed, now_seconds),
            spent_usd=float(self._spending.spent(name, jobs, now_seconds)),
            steps=self._steps(records, not_ended),
        )

    def _steps(
        self, records: Sequence[TrialRecord], not_ended: Collection[str]
    ) -> dict[str, tuple[StepObservation, ...]]:
        """Those of trials that have timed some; of one that has ended they stay as they are."""
        found = {}
        for job in (record.stands.job for record in records):
            steps = self._steps_of_ended.get(job)
            if steps is None:
                steps = own_step_times(self._store.measurements.observations(job))
                if job not in not_ended:
                    self._steps_of_ended[job] = steps
            if steps:
                found[job] = steps
        return found

    def _free(
        self,
        study: str,
        alive: Sequence[HeldInstance],
        least_billed: Mapping[str, float],
        now_seconds: float,
    ) -> tuple[FreeInstance, ...]:
        """Return what trials have left and others may take, paid to the end of its least bill."""
        return tuple(
            FreeInstance(
                held.offer,
                max(held.requested_seconds + least_billed.get(held.offer, 0.0) - now_seconds, 0.0),
            )
            for held in self._lingering.free(alive, now_seconds, study)
        )


def _as_it_is(record: TrialRecord, not_ended: Collection[str]) -> TrialRecord:
    """The record of a trial whose job may have ended before its driver said so."""
    if record.stands.has_ended or record.stands.job in not_ended:
        return record
    return replace(record, stands=replace(record.stands, has_ended=True))
