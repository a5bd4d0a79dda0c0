"""Snapshots of studies for policies, from the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from autoscaler.controller.act.idle_instances import IdleInstances
from autoscaler.controller.budgets.spending import Spending
from autoscaler.controller.errors import ErrorRecord
from autoscaler.controller.jobs.step_times import OwnStepTimes
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import FreeInstance, StudySnapshot
from autoscaler.domain.terms import TrialRecord
from autoscaler.store.store import Store

# The latest trials suffice to learn from; more would only cost time.
_MOST_TRIALS = 300


class StudySnapshots:
    """Source of snapshots of studies."""

    def __init__(
        self,
        store: Store,
        idle_instances: IdleInstances,
        spending: Spending,
        troubles: ErrorRecord,
    ) -> None:
        self._store = store
        self._idle_instances = idle_instances
        self._spending = spending
        self._troubles = troubles
        self._step_times = OwnStepTimes(store)
        self._steps_of_ended: dict[str, tuple[StepObservation, ...]] = {}

    def take(
        self,
        jobs: Sequence[JobRecord],
        alive: Sequence[HeldInstance],
        offers: Sequence[Offer],
        now_seconds: float,
    ) -> tuple[StudySnapshot, ...]:
        """Return the snapshots of these jobs' studies that have terms; `alive` are all instances.

        A study whose snapshot fails is left out, and its error is recorded.
        """
        names = sorted({job.spec.study for job in jobs if job.spec.study is not None})
        all_jobs = self._store.jobs.alive() if names else ()
        least_billed = {offer.id: float(offer.minimum_billed_seconds) for offer in offers}
        snapshots = (
            self._troubles.attempt(
                name,
                "record",
                partial(self._snapshot_of, name, all_jobs, alive, least_billed, now_seconds),
            )
            for name in names
        )
        return tuple(snapshot for snapshot in snapshots if snapshot is not None)

    @property
    def in_trouble(self) -> Collection[str]:
        """The studies whose snapshot fails, or whose budget can't be checked."""
        return self._troubles.by_subject().keys()

    def _snapshot_of(
        self,
        name: str,
        jobs: Sequence[JobRecord],
        alive: Sequence[HeldInstance],
        least_billed: Mapping[str, float],
        now_seconds: float,
    ) -> StudySnapshot | None:
        """Return the snapshot of a study; None before it has terms. `jobs` have not ended."""
        terms = self._store.studies.terms(name)
        if terms is None:
            return None
        not_ended = {job.id for job in jobs}
        records = self._store.studies.trials(name)[-_MOST_TRIALS:]
        return StudySnapshot(
            name=name,
            terms=terms,
            trials=tuple(_with_job_end(record, not_ended) for record in records),
            free=self._free(name, alive, least_billed, now_seconds),
            spent_usd=float(self._spending.of_study(name, jobs, now_seconds)),
            steps=self._step_observations(records, not_ended),
        )

    def _step_observations(
        self, records: Sequence[TrialRecord], not_ended: Collection[str]
    ) -> dict[str, tuple[StepObservation, ...]]:
        """Return the step times of each trial with any; those of ended trials are cached."""
        steps_of = {}
        for job in (record.stands.job for record in records):
            steps = self._steps_of_ended.get(job)
            if steps is None:
                _, steps = self._step_times.of(job)
                if job not in not_ended:
                    self._steps_of_ended[job] = steps
            if steps:
                steps_of[job] = steps
        return steps_of

    def _free(
        self,
        study: str,
        alive: Sequence[HeldInstance],
        least_billed: Mapping[str, float],
        now_seconds: float,
    ) -> tuple[FreeInstance, ...]:
        """Return the idle instances of a study, with the seconds left of their minimum bills."""
        return tuple(
            FreeInstance(
                held.offer,
                max(held.requested_seconds + least_billed.get(held.offer, 0.0) - now_seconds, 0.0),
            )
            for held in self._idle_instances.free(alive, now_seconds, study)
        )


def _with_job_end(record: TrialRecord, not_ended: Collection[str]) -> TrialRecord:
    """Return a trial's record, marked as ended if its job has ended.

    The driver may not have reported the end yet.
    """
    if record.stands.has_ended or record.stands.job in not_ended:
        return record
    return replace(record, stands=replace(record.stands, has_ended=True))
