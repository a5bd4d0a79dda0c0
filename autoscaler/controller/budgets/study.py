"""Spending of studies, and the guard of their budgets."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial

from autoscaler.controller.budgets.leave_limits import last_saves_usd, usual_seconds
from autoscaler.controller.errors import ErrorRecord
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.terms import TrialRecord, budget_used_up
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_AT_WORK = (JobPhase.PENDING, JobPhase.RUNNING)


class StudySpending:
    """Costs of all trials of each study; the sum of an ended trial is cached.

    Later ledger entries of an ended trial, such as the last part of its log, are not included.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: dict[str, set[str]] = {}
        self._spent_by_ended: dict[str, Decimal] = {}

    def spent(self, study: str, alive: Sequence[JobRecord], now_seconds: float) -> Decimal:
        """Return the cost of a study up to now, in US dollars.

        `alive` are the jobs that have not ended.
        """
        if study not in self._jobs:
            self._jobs[study] = {
                job.id for job in self._store.jobs.all() if job.spec.study == study
            }
        at_work = {job.id for job in alive if job.spec.study == study}
        jobs = self._jobs[study] = (
            self._jobs[study] | at_work
        )  # a new set, because other threads may read the old one
        return sum((self._of_job(job, job in at_work, now_seconds) for job in jobs), Decimal(0))

    def _of_job(self, job: str, is_alive: bool, now_seconds: float) -> Decimal:
        if job in self._spent_by_ended:
            return self._spent_by_ended[job]
        ledger = Ledger(self._store.ledger.entries(job))
        spent = ledger.spent(job, now_seconds)
        if not is_alive and not ledger.rate_usd_per_hour(now_seconds, job):
            self._spent_by_ended[job] = spent
        return spent


class StudyBudgets:
    """Guard of studies' budgets: trials end before their study exceeds its budget."""

    def __init__(self, store: Store, spending: StudySpending, troubles: ErrorRecord) -> None:
        self._store = store
        self._spending = spending
        self._troubles = troubles

    def guard(
        self,
        jobs: Sequence[JobRecord],
        instances: Mapping[str, Sequence[HeldInstance]],
        now_seconds: float,
    ) -> None:
        """Stop the trials of every study whose budget is used up.

        `jobs` are those that have not ended, `instances` are by job.
        """
        trials: dict[str, list[JobRecord]] = defaultdict(list)
        for job in jobs:
            if job.spec.study is not None:
                trials[job.spec.study].append(job)
        self._troubles.keep(set(trials))
        for study, study_jobs in trials.items():
            end = partial(self._end_if_used_up, study, study_jobs, jobs, instances, now_seconds)
            self._troubles.attempt(study, "budget", end)

    def _end_if_used_up(
        self,
        study: str,
        trials: Sequence[JobRecord],
        jobs: Sequence[JobRecord],
        instances: Mapping[str, Sequence[HeldInstance]],
        now_seconds: float,
    ) -> None:
        if is_study_budget_used_up(
            self._store, self._spending, study, jobs, instances, now_seconds
        ):
            self._end(study, trials, now_seconds)

    def _end(self, study: str, trials: Sequence[JobRecord], now_seconds: float) -> None:
        cause = budget_used_up(study)
        for job in trials:
            if job.phase in _AT_WORK:
                self._store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, cause)
                self._store.events.add(Event(now_seconds, "budget", cause, job.id))
                _log.info("%s budget: %s", job.id, cause)


def is_study_budget_used_up(
    store: Store,
    spending: StudySpending,
    study: str,
    jobs: Sequence[JobRecord],
    instances: Mapping[str, Sequence[HeldInstance]],
    now_seconds: float,
) -> bool:
    """Return whether the trials of a study have to leave now to stay within its budget.

    `jobs` are all jobs that have not ended, `instances` all held instances by job. Instances cost
    until they have drained and the cloud has ended them.
    """
    terms = store.studies.terms(study)
    if terms is None or terms.objective.most_usd is None:
        return False
    trials = [job for job in jobs if job.spec.study == study]
    held = _held_by_study(store, study, jobs, instances)
    spent_usd = spending.spent(study, jobs, now_seconds)
    records = store.studies.trials(study)
    leaving_seconds = max(map(usual_seconds, trials), default=0.0) + _longest_unit_seconds(records)
    rate_usd_per_hour = float(sum(instance.costing_usd_per_hour for instance in held))
    to_come_usd = Decimal(rate_usd_per_hour * leaving_seconds / 3600)
    to_come_usd += last_saves_usd(trials, held)
    return spent_usd + to_come_usd >= terms.objective.most_usd


def _held_by_study(
    store: Store,
    study: str,
    jobs: Sequence[JobRecord],
    instances: Mapping[str, Sequence[HeldInstance]],
) -> list[HeldInstance]:
    """Return the instances that trials of a study hold, including ended trials."""
    study_of = {job.id: job.spec.study for job in jobs}
    return [
        held
        for job, held_by_job in instances.items()
        if (study_of[job] if job in study_of else store.jobs.get(job).spec.study) == study
        for held in held_by_job
    ]


def _longest_unit_seconds(records: Sequence[TrialRecord]) -> float:
    """Return the seconds of the slowest trial per unit of work; trials leave between two units."""
    latest = [record.speeds[0] for record in records if record.speeds]
    return max((speed.seconds / speed.work for speed in latest), default=0.0)
