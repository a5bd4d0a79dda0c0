"""Budgets of jobs, studies and the whole fleet, all enforced by one guard.

A guard ends the jobs of its scope before their spending, with the cost of leaving their instances,
exceeds the budget. `LaunchGate` checks all of them again at the moment of a launch's call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from autoscaler.controller.budgets.accounts import BudgetAccounts
from autoscaler.controller.budgets.leave_limits import last_saves_usd, usual_seconds
from autoscaler.controller.budgets.spending import Spending, cost_usd
from autoscaler.controller.errors import ErrorRecord
from autoscaler.controller.hands_off import hands_off
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import CastorError
from autoscaler.domain.instance import HeldInstance, by_job
from autoscaler.domain.job import JobPhase, JobRecord, StopReason
from autoscaler.domain.terms import TrialRecord
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_AT_WORK = (JobPhase.PENDING, JobPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class BudgetGuard:
    """Guard of the common budget of some jobs. Costs are in US dollars.

    Attributes:
        budget_usd: most that the jobs may cost; None: there is no budget.
        jobs: the jobs that have not ended.
        spent_usd: returns their cost up to a time; ended jobs of the scope are included.
        leaving_usd: returns the cost of leaving their instances, from now to the end of the bills.
        cause: returns why the jobs end at the budget, and what their owner can do.
        stop_reason: the budget, as a value.
    """

    budget_usd: Decimal | None
    jobs: Sequence[JobRecord]
    spent_usd: Callable[[float], Decimal]
    leaving_usd: Callable[[], Decimal]
    cause: Callable[[], str]
    stop_reason: StopReason

    def permits(self, to_come_usd: Decimal, now_seconds: float) -> bool:
        """Return whether costs of `to_come_usd` from now on stay below the budget."""
        budget_usd = self.budget_usd
        return budget_usd is None or self.spent_usd(now_seconds) + to_come_usd < budget_usd

    def is_used_up(self, now_seconds: float) -> bool:
        """Return whether the jobs must leave their instances now to stay within the budget."""
        return self.budget_usd is not None and not self.permits(self.leaving_usd(), now_seconds)

    def enforce(self, store: Store, now_seconds: float) -> None:
        """Stop the jobs if their budget is used up, whatever the plan is."""
        at_work = [job for job in self.jobs if job.phase in _AT_WORK]
        if not at_work or not self.is_used_up(now_seconds):
            return
        cause = self.cause()
        for job in at_work:
            store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, cause, self.stop_reason)
            store.events.add(Event(now_seconds, "budget", cause, job.id))
            _log.info("%s budget: %s", job.id, cause, extra={"job": job.id})


class Budgets:
    """Guards of all budgets of a deployment; `fleet_usd` is the budget of all jobs together.

    Guards hold for one moment: make a new one for each check.
    """

    def __init__(
        self,
        store: Store,
        spending: Spending,
        fleet_usd: Decimal | None,
        accounts: BudgetAccounts,
    ) -> None:
        self._store = store
        self.spending = spending
        self._fleet_usd = fleet_usd
        self.accounts = accounts

    def of_job(self, job: JobRecord, held: Sequence[HeldInstance]) -> BudgetGuard:
        """Return the guard of one job; without instances it spends nothing and needs no guard."""
        return BudgetGuard(
            budget_usd=job.spec.objective.most_usd if held else None,
            jobs=(job,),
            spent_usd=partial(self.spending.of_job, job.id),
            leaving_usd=partial(_leaving_usd, (job,), held),
            cause=lambda: _job_cause(job, self.spending),
            stop_reason=StopReason.JOB_BUDGET,
        )

    def of_study(
        self,
        study: str,
        jobs: Sequence[JobRecord],
        instances: Mapping[str, Sequence[HeldInstance]],
    ) -> BudgetGuard:
        """Return the guard of a study, which counts all trials.

        `jobs` are all jobs that have not ended, `instances` all held instances by job.
        """
        terms = self._store.studies.terms(study)
        trials = [job for job in jobs if job.spec.study == study]

        def leaving_usd() -> Decimal:
            records = self._store.studies.trials(study)
            held = self._held_by_study(study, jobs, instances)
            return _leaving_usd(trials, held, _longest_unit_seconds(records))

        return BudgetGuard(
            budget_usd=None if terms is None else terms.objective.most_usd,
            jobs=trials,
            spent_usd=partial(self.spending.of_study, study, jobs),
            leaving_usd=leaving_usd,
            cause=partial(_study_cause, study),
            stop_reason=StopReason.STUDY_BUDGET,
        )

    def enforce_on_studies(
        self,
        instances: Mapping[str, Sequence[HeldInstance]],
        troubles: ErrorRecord,
        now_seconds: float,
    ) -> None:
        """Stop the trials of every study whose budget is used up.

        `instances` are all held instances by job. An error of one study is recorded in `troubles`
        and does not affect the others.
        """
        jobs = self._store.jobs.alive()
        studies = {job.spec.study for job in jobs if job.spec.study is not None}
        troubles.keep(studies)

        def enforce(study: str) -> None:
            self.of_study(study, jobs, instances).enforce(self._store, now_seconds)

        for study in sorted(studies):
            troubles.attempt(study, "budget", partial(enforce, study))

    def of_fleet(self, jobs: Sequence[JobRecord], held: Sequence[HeldInstance]) -> BudgetGuard:
        """Return the guard of all jobs together, counted from the first instance.

        `jobs` are those that have not ended, `held` all instances that cost money.
        """
        cause = (
            f"the fleet budget of ${self._fleet_usd} is used up: run castor serve with a larger "
            "--fleet-usd, and submit the job again"
        )
        return BudgetGuard(
            budget_usd=self._fleet_usd,
            jobs=jobs,
            spent_usd=partial(self.spending.of_fleet, held),
            leaving_usd=partial(_leaving_usd, jobs, held),
            cause=lambda: cause,
            stop_reason=StopReason.FLEET_BUDGET,
        )

    def _held_by_study(
        self,
        study: str,
        jobs: Sequence[JobRecord],
        instances: Mapping[str, Sequence[HeldInstance]],
    ) -> list[HeldInstance]:
        """Return the instances that trials of a study hold, including ended trials."""
        study_of = {job.id: job.spec.study for job in jobs}
        return [
            held
            for job, job_instances in instances.items()
            if (study_of[job] if job in study_of else self._store.jobs.get(job).spec.study)
            == study
            for held in job_instances
        ]


class LaunchGate:
    """Final check of ordered launches. Thread-safe.

    An order may wait long for its call, in a queue of workers or for a throttled cloud.
    `Instances.begin_launch` checks whether the instance is still wanted and its job still takes
    instances, in the transaction that marks the launch as sent.
    """

    def __init__(self, store: Store, settings: ControllerSettings, budgets: Budgets) -> None:
        self._store = store
        self._settings = settings
        self._budgets = budgets

    def obstacle(self, held: HeldInstance, now_seconds: float) -> str | None:
        """Return why the instance must not be launched now; None if it may be.

        Budgets count the instance as if it were running, so that no launch is made only to be
        ended by the guard of its budget.
        """
        hands_off_reason = hands_off(self._settings, self._store)
        if hands_off_reason is not None:
            return hands_off_reason
        job = self._store.jobs.get(held.job)
        job_instances = self._store.instances.of_job(job.id)
        if self._budgets.of_job(job, job_instances).is_used_up(now_seconds):
            return f"the budget of job {job.id} is used up"
        if job.spec.study is not None and self._is_study_used_up(job.spec.study, now_seconds):
            return f"the budget of study {job.spec.study} is used up"
        if self._settings.fleet_usd is not None:
            jobs, instances = self._store.jobs.alive(), self._store.instances.alive()
            if self._budgets.of_fleet(jobs, instances).is_used_up(now_seconds):
                return "the fleet budget is used up"
        return self._shared_obstacle(job, now_seconds)

    def _shared_obstacle(self, job: JobRecord, now_seconds: float) -> str | None:
        """Return why a budget that the job shares has no room for the instance; None if it has."""
        jobs, instances = self._store.jobs.alive(), self._store.instances.alive()
        for standing in self._budgets.accounts.standings(jobs, instances, now_seconds):
            budget = standing.budget
            if not budget.scope.covers(job.spec.owner, job.spec.study):
                continue
            if standing.used_up is not None:
                return f"the budget of {budget.scope.words} is used up"
            if budget.hourly_usd is not None and standing.usd_per_hour > budget.hourly_usd:
                return f"{budget.scope.words} may hold at most ${budget.hourly_usd}/h"
        return None

    def _is_study_used_up(self, study: str, now_seconds: float) -> bool:
        """Return whether a study's budget is used up; True also if its records can't be read."""
        jobs, held = self._store.jobs.alive(), by_job(self._store.instances.alive())
        try:
            return self._budgets.of_study(study, jobs, held).is_used_up(now_seconds)
        except CastorError:  # the control loop reports the error as the study's
            return True


def _leaving_usd(
    jobs: Sequence[JobRecord], held: Sequence[HeldInstance], unit_seconds: float = 0.0
) -> Decimal:
    """Return the cost for jobs to leave their instances.

    Instances cost until they have drained and the cloud has ended them. `unit_seconds` are the
    seconds until the jobs may begin to leave.
    """
    leaving_seconds = max(map(usual_seconds, jobs), default=0.0) + unit_seconds
    return cost_usd(held, leaving_seconds) + last_saves_usd(jobs, held)


def _longest_unit_seconds(records: Sequence[TrialRecord]) -> float:
    """Return the seconds of the slowest trial per unit of work; trials leave between two units."""
    latest = [record.speeds[0] for record in records if record.speeds]
    return max((speed.seconds / speed.work for speed in latest), default=0.0)


def _study_cause(study: str) -> str:
    return f"the budget of study {study} is used up: give it more, its trials go on"


def _job_cause(job: JobRecord, spending: Spending) -> str:
    sent_usd = spending.ledger(job.id).transfers(lambda charge: charge.job)
    sent_text = (
        f", ${sent_usd[job.id]:.2f} of it for transfers of its files"
        if sent_usd.get(job.id)
        else ""
    )
    objective = job.spec.objective
    if objective.budget_usd is None:
        return (
            f"budget of ${objective.cap_usd} used up{sent_text}, the default of this deployment "
            "for jobs without a budget: resume it with objective=budget=AMOUNT, or budget=none"
        )
    return (
        f"budget of ${objective.budget_usd} used up{sent_text}: resume it with a larger "
        "budget, as objective=budget=AMOUNT"
    )
