"""Budgets of jobs, studies and the whole fleet, all enforced by one guard.

A guard ends the jobs of its scope before their spending, with the cost of leaving their instances,
exceeds the budget.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from autoscaler.controller.budgets.leave_limits import last_saves_usd, usual_seconds
from autoscaler.controller.budgets.spending import Spending, cost_usd
from autoscaler.controller.errors import ErrorRecord
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobPhase, JobRecord, StopReason
from autoscaler.domain.terms import TrialRecord
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_AT_WORK = (JobPhase.PENDING, JobPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class BudgetScope:
    """Jobs with a common budget, and what they cost, in US dollars.

    Attributes:
        budget_usd: most that the jobs may cost.
        jobs: the jobs that have not ended.
        spent_usd: returns their cost up to a time; ended jobs of the scope are included.
        leaving_usd: returns the cost of leaving their instances, from now to the end of the bills.
        cause: returns why the jobs end at the budget, and what their owner can do.
        stop_reason: the budget, as a value.
    """

    budget_usd: Decimal
    jobs: Sequence[JobRecord]
    spent_usd: Callable[[float], Decimal]
    leaving_usd: Callable[[], Decimal]
    cause: Callable[[], str]
    stop_reason: StopReason


class BudgetGuard:
    """Guard of the budget of one scope; None: there is no budget."""

    def __init__(self, scope: BudgetScope | None) -> None:
        self._scope = scope

    def permits(self, to_come_usd: Decimal, now_seconds: float) -> bool:
        """Return whether costs of `to_come_usd` from now on stay below the budget."""
        scope = self._scope
        return scope is None or scope.spent_usd(now_seconds) + to_come_usd < scope.budget_usd

    def is_used_up(self, now_seconds: float) -> bool:
        """Return whether the jobs must leave their instances now to stay within the budget."""
        if self._scope is None:
            return False
        return not self.permits(self._scope.leaving_usd(), now_seconds)

    def enforce(self, store: Store, now_seconds: float) -> None:
        """Stop the jobs if their budget is used up, whatever the plan is."""
        scope = self._scope
        at_work = [] if scope is None else [job for job in scope.jobs if job.phase in _AT_WORK]
        if scope is None or not at_work or not self.is_used_up(now_seconds):
            return
        cause = scope.cause()
        for job in at_work:
            store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, cause, scope.stop_reason)
            store.events.add(Event(now_seconds, "budget", cause, job.id))
            _log.info("%s budget: %s", job.id, cause)


class Budgets:
    """Guards of all budgets of a deployment; `fleet_usd` is the budget of all jobs together.

    Guards hold for one moment: make a new one for each check.
    """

    def __init__(self, store: Store, spending: Spending, fleet_usd: Decimal | None) -> None:
        self._store = store
        self.spending = spending
        self._fleet_usd = fleet_usd

    def of_job(self, job: JobRecord, held: Sequence[HeldInstance]) -> BudgetGuard:
        """Return the guard of one job; without instances it spends nothing and needs no guard."""
        budget_usd = job.spec.objective.most_usd
        if budget_usd is None or not held:
            return BudgetGuard(None)
        scope = BudgetScope(
            budget_usd=budget_usd,
            jobs=(job,),
            spent_usd=partial(self.spending.of_job, job.id),
            leaving_usd=partial(_leaving_usd, (job,), held),
            cause=lambda: _job_cause(job, self.spending),
            stop_reason=StopReason.JOB_BUDGET,
        )
        return BudgetGuard(scope)

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
        if terms is None or terms.objective.most_usd is None:
            return BudgetGuard(None)
        trials = [job for job in jobs if job.spec.study == study]

        def leaving_usd() -> Decimal:
            records = self._store.studies.trials(study)
            held = self._held_by_study(study, jobs, instances)
            return _leaving_usd(trials, held, _longest_unit_seconds(records))

        scope = BudgetScope(
            budget_usd=terms.objective.most_usd,
            jobs=trials,
            spent_usd=partial(self.spending.of_study, study, jobs),
            leaving_usd=leaving_usd,
            cause=partial(_study_cause, study),
            stop_reason=StopReason.STUDY_BUDGET,
        )
        return BudgetGuard(scope)

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
        if self._fleet_usd is None:
            return BudgetGuard(None)
        cause = (
            f"the fleet budget of ${self._fleet_usd} is used up: run castor serve with a larger "
            "--fleet-usd, and submit the job again"
        )
        scope = BudgetScope(
            budget_usd=self._fleet_usd,
            jobs=jobs,
            spent_usd=partial(self.spending.of_fleet, held),
            leaving_usd=partial(_leaving_usd, jobs, held),
            cause=lambda: cause,
            stop_reason=StopReason.FLEET_BUDGET,
        )
        return BudgetGuard(scope)

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
        f"budget of ${objective.budget_usd} used up{sent_text}: submit it again with a larger "
        "budget"
    )
