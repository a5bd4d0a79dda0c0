"""Reading of the facts from which notices follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from autoscaler.controller.budgets.accounts import TELLING_SECONDS, BudgetStanding
from autoscaler.controller.budgets.spending import Spending
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.predicted_goodput import remaining_seconds_of
from autoscaler.domain.access import OWNER, Owner
from autoscaler.domain.budget import BudgetBasis, ScopeKind, month_name
from autoscaler.domain.instance import Desired, HeldInstance, by_job
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.plan import CHANCE_FIGURE, NEEDED_FIGURE, Decision
from autoscaler.notifications.facts import (
    BudgetFacts,
    JobFacts,
    LimitFacts,
    NoticeFacts,
    SilentProvider,
    StudyFacts,
)
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.repositories.reports import FailureRecord
from autoscaler.store.store import Store

OVERDUE_SECONDS: Final = 1800.0
_BUDGET_SECONDS: Final = 60.0
_STUDY_SECONDS_FIGURE: Final = "study_seconds"
_STUDY_CHANCE_FIGURE: Final = "chance"


class FactReader:
    """Reader of the store and of the controller's status. For one thread."""

    def __init__(self, store: Store, status: ControllerStatus, fleet_usd: Decimal | None) -> None:
        self._store = store
        self._status = status
        self._fleet_usd = fleet_usd
        self._spending = Spending(store)
        self._alive: frozenset[str] | None = None
        self._unseen: set[str] = set()
        self._studies: set[str] = set()
        self._idle_studies: frozenset[str] = frozenset()
        self._budgets: tuple[BudgetFacts, ...] = ()
        self._budgets_seconds = float("-inf")

    def forget_ended(self) -> None:
        """Leave the jobs and studies that have ended so far out of later facts."""
        self._unseen.clear()
        self._studies -= self._idle_studies

    def read(self, since_seconds: float, now_seconds: float) -> NoticeFacts:
        """Return the facts of now; jobs that ended before `since_seconds` are left out."""
        status, alive = self._status, self._store.jobs.alive()
        held = self._store.instances.alive()
        with self._spending.each_ledger_once():
            jobs = (*alive, *self._ended(alive, since_seconds))
            job_facts = self._jobs(jobs, since_seconds, now_seconds)
            budgets = self._budgets_now(alive, held, now_seconds)
            studies = self._ended_studies(jobs, alive, now_seconds)
        return NoticeFacts(
            now_seconds,
            since_seconds,
            job_facts,
            budgets,
            tuple(_silent(name, held, status) for name in sorted(status.silent)),
            status.strays,
            _overdue(held, now_seconds),
            studies,
            tuple(self._shared_limits()),
        )

    def _ended(self, alive: Sequence[JobRecord], since_seconds: float) -> list[JobRecord]:
        """Return the jobs that ended since the last look; at the first look, since a time."""
        ids = frozenset(job.id for job in alive)
        if self._alive is None:
            ended = [
                job
                for job in self._store.jobs.all()
                if (job.ended_seconds or 0.0) >= since_seconds
            ]
            self._unseen = {job.id for job in ended}
        else:
            self._unseen |= self._alive - ids
            ended = [self._store.jobs.get(job) for job in sorted(self._unseen)]
        self._alive = ids
        return ended

    def _jobs(
        self, jobs: Sequence[JobRecord], since_seconds: float, now_seconds: float
    ) -> tuple[JobFacts, ...]:
        failures = {
            record.job: record for record in self._store.reports.recent_failures(since_seconds)
        }
        return tuple(self._job(job, failures.get(job.id), now_seconds) for job in jobs)

    def _job(self, job: JobRecord, failure: FailureRecord | None, now_seconds: float) -> JobFacts:
        status = self._status
        stall = None if job.phase.is_final else status.stalls.get(job.id)
        spent_usd = rate_usd = Decimal(0)
        if job.phase.is_final or stall is not None:
            spent_usd = self._spending.of_job(job.id, now_seconds)
            rate_usd = self._spending.ledger(job.id).rate_usd_per_hour(now_seconds, job.id)
        return JobFacts(
            job,
            spent_usd,
            rate_usd,
            failure,
            stall,
            status.in_force.get(job.id),
            remaining_seconds_of(job, None),
        )

    def _budgets_now(
        self, alive: Sequence[JobRecord], held: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[BudgetFacts, ...]:
        """Return the budgets as they were at most a minute ago: their sums take time."""
        if not 0.0 <= now_seconds - self._budgets_seconds < _BUDGET_SECONDS:
            self._budgets_seconds = now_seconds
            jobs = (self._job_budget(job, now_seconds) for job in alive)
            self._budgets = (
                *(budget for budget in jobs if budget is not None),
                *self._study_budgets(alive, held, now_seconds),
                *self._fleet_budget(alive, held, now_seconds),
                *self._month_budgets(now_seconds),
            )
        return self._budgets

    def _job_budget(self, job: JobRecord, now_seconds: float) -> BudgetFacts | None:
        objective, decision = job.spec.objective, self._status.in_force.get(job.id)
        if objective.most_usd is None or _is_kept(decision, CHANCE_FIGURE, objective.confidence):
            return None
        owner = job.spec.owner
        return BudgetFacts(
            "job",
            job.id,
            objective.most_usd,
            self._spending.of_job(job.id, now_seconds),
            self._spending.ledger(job.id).rate_usd_per_hour(now_seconds, job.id),
            remaining_seconds_of(job, None),
            None if decision is None else decision.figures.get(NEEDED_FIGURE),
            job,
            owner.person,
            owner.team,
        )

    def _study_budgets(
        self, alive: Sequence[JobRecord], held: Sequence[HeldInstance], now_seconds: float
    ) -> list[BudgetFacts]:
        """Return the budgets of studies whose plans don't keep them anyhow."""
        studies = sorted({job.spec.study for job in alive if job.spec.study is not None})
        self._spending.forget(studies)
        grouped, budgets = by_job(held), []
        for study in studies:
            terms = self._store.studies.terms(study)
            trials = [job for job in alive if job.spec.study == study]
            decisions = [self._status.in_force.get(job.id) for job in trials]
            if terms is None or (limit_usd := terms.objective.most_usd) is None:
                continue
            confidence = terms.objective.confidence
            if any(_is_kept(decision, _STUDY_CHANCE_FIGURE, confidence) for decision in decisions):
                continue
            instances = [entry for job in trials for entry in grouped.get(job.id, ())]
            times = [
                decision.figures[_STUDY_SECONDS_FIGURE]
                for decision in decisions
                if decision is not None and _STUDY_SECONDS_FIGURE in decision.figures
            ]
            owner = self._study_owner(study)
            budgets.append(
                BudgetFacts(
                    "study",
                    study,
                    limit_usd,
                    self._spending.of_study(study, alive, now_seconds),
                    _rate_usd(instances),
                    max(times, default=None),
                    person=owner.person,
                    team=owner.team,
                )
            )
        return budgets

    def _fleet_budget(
        self, alive: Sequence[JobRecord], held: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[BudgetFacts, ...]:
        """Return the budget of the deployment, with the cost of the jobs that run, if known."""
        if self._fleet_usd is None:
            return ()
        grouped, spent_usd = by_job(held), self._spending.of_fleet(held, now_seconds)
        needed_usd: Decimal | None = spent_usd
        for job in alive:
            rate_usd, seconds = _rate_usd(grouped.get(job.id, ())), remaining_seconds_of(job, None)
            if rate_usd and needed_usd is not None:
                hours = None if seconds is None else Decimal(str(seconds / 3600.0))
                needed_usd = None if hours is None else needed_usd + rate_usd * hours
        is_more = needed_usd is not None and needed_usd > self._fleet_usd
        return (
            BudgetFacts(
                "fleet",
                "",
                self._fleet_usd,
                spent_usd,
                _rate_usd(held),
                needed_usd=float(needed_usd) if needed_usd is not None and is_more else None,
            ),
        )

    def _month_budgets(self, now_seconds: float) -> list[BudgetFacts]:
        """Return the shared budgets by month: those of people, teams, studies and the fleet."""
        budgets = []
        for standing in self._status.budgets:
            budget, scope = standing.budget, standing.budget.scope
            if budget.month_usd is None:
                continue
            person, team = self._owner_of(standing)
            budgets.append(
                BudgetFacts(
                    scope.kind.value,
                    scope.name,
                    budget.month_usd,
                    standing.month_usd,
                    standing.usd_per_hour,
                    person=person,
                    team=team,
                    month=month_name(standing.month, budget.zone),
                    expected_usd=self._expected_usd(standing, now_seconds),
                )
            )
        return budgets

    def _shared_limits(self) -> Iterator[LimitFacts]:
        """Yield the limits in all and by the hour of shared budgets."""
        for standing in self._status.budgets:
            budget, scope = standing.budget, standing.budget.scope
            person, team = self._owner_of(standing)
            used_up = standing.used_up
            is_used_up = used_up is not None and used_up[0] is BudgetBasis.TOTAL
            limits = (
                (BudgetBasis.TOTAL, budget.total_usd, standing.total_usd, is_used_up),
                (BudgetBasis.HOUR, budget.hourly_usd, standing.usd_per_hour, False),
            )
            way_out = f"castor budget set {scope} raises it"
            for basis, limit, used, is_over in limits:
                if limit is not None:
                    yield LimitFacts(
                        *(scope.kind.value, scope.name, basis, limit, used),
                        *(standing.usd_per_hour, way_out, is_over, person, team),
                    )

    def _expected_usd(
        self, standing: BudgetStanding, now_seconds: float
    ) -> tuple[float, float] | None:
        """Return the ends of what the month would cost if its limit slowed no job.

        None: without a plan, the first hours of a month tell nothing of its rest.
        """
        plan = self._status.budget_plans.get(str(standing.budget.scope))
        if plan is None and now_seconds - standing.month.start_seconds < TELLING_SECONDS:
            return None
        return standing.expected_usd(None if plan is None else plan.wished_usd, now_seconds)

    def _owner_of(self, standing: BudgetStanding) -> tuple[str | None, str | None]:
        """Return the person and the team of a budget; None where it has none."""
        scope = standing.budget.scope
        match scope.kind:
            case ScopeKind.PERSON:
                person = self._store.people.get(scope.name)
                return scope.name, None if person is None else person.team
            case ScopeKind.TEAM:
                return None, scope.name
            case ScopeKind.STUDY:
                owner = self._study_owner(scope.name)
                return owner.person, owner.team
            case ScopeKind.FLEET:
                return None, None

    def _study_owner(self, study: str) -> Owner:
        owners = self._store.owners.of(OwnedKind.STUDY, study)
        return owners[0] if owners else Owner(OWNER, None)

    def _ended_studies(
        self, jobs: Sequence[JobRecord], alive: Sequence[JobRecord], now_seconds: float
    ) -> tuple[StudyFacts, ...]:
        """Return the studies that have ended or were stopped: they have no driver and no job.

        A driver that has died leaves jobs, or trials without a result whose jobs were not stopped:
        its study goes on later.
        """
        self._studies |= {job.spec.study for job in jobs if job.spec.study is not None}
        at_work = {job.spec.study for job in alive}
        self._idle_studies = frozenset(
            study
            for study in self._studies - at_work
            if self._store.leases.holder(study, now_seconds) is None
        )
        ended = (self._study(study, alive, now_seconds) for study in sorted(self._idle_studies))
        return tuple(study for study in ended if study is not None)

    def _study(
        self, study: str, alive: Sequence[JobRecord], now_seconds: float
    ) -> StudyFacts | None:
        terms, trials = self._store.studies.terms(study), self._store.studies.trials(study)
        jobs = {job.id: job for job in self._store.jobs.of_study(study)}
        names = {
            trial.stands.job: jobs[trial.stands.job].spec.name
            for trial in trials
            if trial.stands.job in jobs
        }
        if terms is None or not names:
            return None
        has_result = {names.get(trial.stands.job) for trial in trials if trial.stands.has_ended}
        # A trial that was stopped goes on in another job of its name.
        left_open = set(names.values()) - has_result
        stopped = [
            job
            for job in jobs.values()
            if job.phase is JobPhase.STOPPED and job.spec.name in left_open
        ]
        if left_open and not stopped:
            return None
        owner = self._study_owner(study)
        spent_usd = self._spending.of_study(study, alive, now_seconds, list(names))
        ends = [job.ended_seconds or 0.0 for job in jobs.values()]
        last = max(stopped, key=lambda job: job.ended_seconds or 0.0, default=None)
        return StudyFacts(
            *(study, len(set(names.values())), terms.to_begin, terms.best, spent_usd),
            *(owner.person, owner.team, max(ends, default=0.0), len(left_open)),
            None if last is None or last.stop_reason is None else last.cause,
        )


def _is_kept(decision: Decision | None, figure: str, confidence: float) -> bool:
    """Return whether plans keep the budget with the confidence that its owner asked for."""
    chance = None if decision is None else decision.figures.get(figure)
    return chance is not None and chance >= confidence


def _silent(name: str, held: Sequence[HeldInstance], status: ControllerStatus) -> SilentProvider:
    """Return what the store knows of the instances of a provider that does not list them."""
    offers = {offer.id for offer in status.offers if offer.provider == name}
    instances = [entry for entry in held if entry.offer in offers and entry.cloud_id is not None]
    return SilentProvider(name, len(instances), _rate_usd(instances))


def _overdue(held: Sequence[HeldInstance], now_seconds: float) -> dict[str, float]:
    """Return the instances that should have ended long ago, with the seconds since their order."""
    return {
        entry.id: now_seconds - entry.draining_seconds
        for entry in held
        if entry.desired is Desired.ABSENT
        and entry.draining_seconds is not None
        and now_seconds - entry.draining_seconds >= OVERDUE_SECONDS
    }


def _rate_usd(held: Sequence[HeldInstance]) -> Decimal:
    return sum((entry.costing_usd_per_hour for entry in held), Decimal(0))
