"""Control loop: one `tick` observes, plans and acts, as a function of time and the store.

Level-triggered: the next tick makes up for a tick that was missed or interrupted by a crash. A
tick never waits for a provider call to complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Final

from autoscaler.controller.act.intents import IntentExecutor
from autoscaler.controller.act.job_lifecycle import JobLifecycle
from autoscaler.controller.act.reconciler import Reconciler
from autoscaler.controller.budgets.accounts import BudgetStanding
from autoscaler.controller.budgets.guard import Budgets
from autoscaler.controller.clock_jumps import LoopTime
from autoscaler.controller.errors import ErrorRecord
from autoscaler.controller.hands_off import hands_off
from autoscaler.controller.jobs.holdings import held_allocation
from autoscaler.controller.jobs.reversals import Reversals, is_look
from autoscaler.controller.jobs.starts import measure_starts
from autoscaler.controller.observe.instance_sync import Observed, Observer
from autoscaler.controller.observe.snapshots import Snapshots
from autoscaler.controller.observe.studies import StudySnapshots
from autoscaler.controller.offers.market import Market, ProviderState, provider_errors
from autoscaler.controller.plan.checkpoint_intervals import checkpoint_intervals
from autoscaler.controller.plan.isolation import (
    LEFT_OUT_GRACE_SECONDS,
    PlanningFailed,
    minimum_decision,
    planning_by,
)
from autoscaler.controller.plan.triggers import replan_triggers
from autoscaler.controller.plan.waiting import WaitingJobs
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.alarm import ModelAlarm
from autoscaler.domain.budget import BudgetPlan
from autoscaler.domain.instance import Desired, HeldInstance, by_job
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec, StopReason
from autoscaler.domain.lives import LifetimeEstimate
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.plan import Action, Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import GroundTruth, Snapshot
from autoscaler.log_fields import log_fields
from autoscaler.policies.base import Policy
from autoscaler.policies.wrappers.budgets import released
from autoscaler.spans import SpanOpener, no_span
from autoscaler.store.repositories.events import Event
from autoscaler.store.repositories.measurements import REVERSED_DURATION
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_PRUNE_SECONDS = 3600.0
PLANNED_PHASES: Final = (JobPhase.PENDING, JobPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class TickReport:
    """Result of a tick.

    `plan` is None if no plan was made; `trouble` holds errors as text. `awaits_end`: an instance
    that is to end has not ended, so the next listing probably changes the store.
    """

    plan: Plan | None
    decisions: tuple[Decision, ...]
    calls_started: int
    trouble: str | None
    awaits_end: bool


@dataclass(frozen=True, slots=True)
class OfferEstimates:
    """Offers with present estimates, and lives of their instances by offer."""

    offers: tuple[Offer, ...] = ()
    lives: Mapping[str, LifetimeEstimate] = field(default_factory=dict)


@dataclass(slots=True)
class ControllerStatus:
    """Present status for the API. Fields are replaced one by one at the end of a tick.

    `failed_plans` counts plans since the start that failed for some or all jobs. `solver_failures`
    counts plans made without the policy's solver because it failed, was missing or timed out.
    `budgets` are the standings of shared budgets, `budget_plans` the last plan's results by scope.
    `job_troubles` and `study_troubles` hold the present errors, by job id or study name, and
    `in_force` the present decisions, `planned_seconds` the times of the latest plans with them,
    both by job id. `fleet_spent_usd` is the cost of all jobs, ever; None without a budget of the
    fleet. `snapshot` is the last one that was taken for a plan.
    """

    offers: tuple[Offer, ...] = ()
    limits: tuple[Limit, ...] = ()
    unavailable: frozenset[str] = frozenset()
    shadow_prices: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    checkpoint_intervals: Mapping[str, float] = field(default_factory=dict)
    believed: OfferEstimates = field(default_factory=OfferEstimates)
    asked_seconds: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    ticked_seconds: float | None = None
    planning_trouble: str | None = None
    providers: Mapping[str, ProviderState] = field(default_factory=dict)
    strays: frozenset[str] = frozenset()
    study_troubles: Mapping[str, str] = field(default_factory=dict)
    job_troubles: Mapping[str, str] = field(default_factory=dict)
    alarms: Mapping[str, ModelAlarm] = field(default_factory=dict)
    stalls: Mapping[str, str] = field(default_factory=dict)
    in_force: Mapping[str, Decision] = field(default_factory=dict)
    planned_seconds: Mapping[str, float] = field(default_factory=dict)
    hands_off: str | None = None
    budgets: tuple[BudgetStanding, ...] = ()
    budget_plans: Mapping[str, BudgetPlan] = field(default_factory=dict)
    failed_plans: int = 0
    solver_failures: int = 0
    fleet_spent_usd: Decimal | None = None
    snapshot: Snapshot | None = None

    @property
    def silent(self) -> frozenset[str]:
        """The providers whose instances were not listed by the last look, or not in time."""
        return frozenset(name for name, state in self.providers.items() if state.is_silent)

    @property
    def trouble(self) -> str | None:
        """All present errors but those of single jobs as text; None without errors."""
        studies = (f"study {name}: {text}" for name, text in self.study_troubles.items())
        errors = (*provider_errors(self.providers), self.planning_trouble, *studies)
        return "; ".join(filter(None, errors)) or None


class Controller:
    """Body of the control loop. Only one thread calls `tick`."""

    def __init__(
        self,
        store: Store,
        market: Market,
        policy: Policy,
        observer: Observer,
        lifecycle: JobLifecycle,
        reconciler: Reconciler,
        calls: IntentExecutor,
        settings: ControllerSettings,
        budgets: Budgets,
        time: LoopTime,
        truth: Callable[[str], GroundTruth | None] = lambda job: None,
        span: SpanOpener = no_span,
    ) -> None:
        self._store = store
        self._span = span
        self._market = market
        self._planning = planning_by(policy)
        self._observer = observer
        self._lifecycle = lifecycle
        self._reconciler = reconciler
        self._calls = calls
        self._settings = settings
        self._study_errors = ErrorRecord("study")
        self._budgets = budgets
        self._time = time
        studies = StudySnapshots(
            store, reconciler.idle_instances, budgets.spending, self._study_errors
        )
        self._snapshots = Snapshots(
            store, market, settings, studies, budgets.spending, budgets.accounts, truth
        )
        self._tick = 0
        self._ticked_seconds = float("inf")
        self._planned_seconds = float("-inf")
        self._pruned_seconds = float("-inf")
        self._news: object = None
        self._in_force: dict[str, Decision] = {}
        self._reported: dict[str, tuple[object, ...]] = {}
        self._reversals = Reversals()
        self._hands_off: str | None = None
        self._planning_trouble: str | None = None
        self._waiting = WaitingJobs()
        self._known_unplanned: frozenset[str] = frozenset()
        self._job_errors = lifecycle.troubles
        self.status = ControllerStatus()

    def tick(self, now_seconds: float) -> TickReport:
        """Run one iteration of the control loop."""
        self._tick += 1
        with log_fields(tick=self._tick):
            return self._run_tick(now_seconds)

    def _run_tick(self, now_seconds: float) -> TickReport:
        self._hands_off = hands_off(self._settings, self._store)
        jumped_seconds = self._time.begin_tick(now_seconds)
        if jumped_seconds:
            self._record_jump(jumped_seconds, now_seconds)
        with self._span("observe", tick=self._tick):
            observed = self._observer.observe(now_seconds, bool(jumped_seconds))
        with self._span("decide", tick=self._tick), self._budgets.spending.each_ledger_once():
            plan, decisions = self._decide(observed.alive, now_seconds)
        with self._span("act", tick=self._tick):
            started = self._calls.carry_out(now_seconds, launches=self._hands_off is None)
        self._prune(now_seconds)
        self._ticked_seconds = now_seconds
        self._update_status(plan, observed, now_seconds)
        awaits_end = any(held.desired is Desired.ABSENT for held in self._store.instances.alive())
        return TickReport(plan, decisions, started, self.status.trouble, awaits_end)

    def budget_standings(self, now_seconds: float) -> tuple[BudgetStanding, ...]:
        """Return what the jobs of each budget have spent; any thread may call it."""
        jobs, held = self._store.jobs.alive(), self._store.instances.alive()
        return self._budgets.accounts.standings(jobs, held, now_seconds)

    def _record_jump(self, jumped_seconds: float, now_seconds: float) -> None:
        """Record a jump of the wall clock, and keep for an hour what is old only because of it."""
        self._pruned_seconds = self._time.monotonic()
        direction = "forward" if jumped_seconds > 0 else "back"
        text = (
            f"the wall clock jumped {direction} by {abs(jumped_seconds):.0f} s: nothing follows "
            "from silence in this tick; check the time service of the controller's host"
        )
        _log.warning("clock jump: %s", text)
        self._store.events.add(Event(now_seconds, "clock jump", text, None))

    def _decide(
        self, alive: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[Plan | None, tuple[Decision, ...]]:
        """Keep up jobs, plan and act; `alive` are the observed instances."""
        self._keep_up(alive, now_seconds)
        jobs = self._store.jobs.alive()
        alive = self._store.instances.alive()
        self.status.budgets = self._budgets.accounts.update(jobs, alive, now_seconds)
        measure_starts(self._store, alive, self._ticked_seconds, now_seconds)
        planned = [
            job
            for job in jobs
            if job.phase in PLANNED_PHASES and not self._lifecycle.is_finishing(job, now_seconds)
        ]
        self._waiting.begin(planned, alive)
        plan, decisions = self._plan(planned, alive, now_seconds)
        self._record_unplanned({job.id for job in jobs}, now_seconds)
        if self._hands_off is None:
            in_trouble = self._study_errors.by_subject()
            actionable = {job.id: job for job in planned if job.spec.study not in in_trouble}
            self._carry_out(actionable, alive, now_seconds)
        return plan, decisions

    def _keep_up(self, alive: Sequence[HeldInstance], now_seconds: float) -> None:
        grouped = by_job(alive)
        jobs = self._store.jobs.alive()
        for job in jobs:
            instances_of_job = grouped.get(job.id, [])
            keep_up = partial(self._lifecycle.keep_up, job, instances_of_job, now_seconds)
            self._job_errors.attempt(job.id, "upkeep", keep_up)
            is_frozen = self._hands_off is not None
            end_standby = partial(
                self._reconciler.standby.end, job, instances_of_job, now_seconds, is_frozen
            )
            self._job_errors.attempt(job.id, "end of standby", end_standby)
        self._budgets.enforce_on_studies(grouped, self._study_errors, now_seconds)
        self._budgets.of_fleet(self._store.jobs.alive(), alive).enforce(self._store, now_seconds)
        for job_id, instances in grouped.items():
            give_back = partial(self._give_back, job_id, instances, now_seconds)
            self._job_errors.attempt(job_id, "return of instances", give_back)
        ended_jobs = self._store.jobs.ended_with_lighthouse()
        for job in ended_jobs:
            if job.id not in grouped:
                release = partial(self._lifecycle.release_lighthouse, job)
                self._job_errors.attempt(job.id, "end of its lighthouse", release)
        self._job_errors.keep({job.id for job in (*jobs, *ended_jobs)} | grouped.keys())

    def _give_back(
        self, job_id: str, instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Terminate all instances of a job that can be; raise the last error afterwards."""
        job = self._store.jobs.get(job_id)
        failed: Exception | None = None
        for held in instances:
            try:
                self._lifecycle.give_back(held, job, now_seconds)
            except Exception as error:  # an error of one instance must not affect the others
                failed = error
        if failed is not None:
            raise failed

    def _plan(
        self, jobs: Sequence[JobRecord], alive: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[Plan | None, tuple[Decision, ...]]:
        """Plan after a change or when a plan is due; otherwise the last decisions stay."""
        if not self._market.offers:  # after a start, until a provider has answered
            return None, ()
        moment_seconds = self._time.monotonic()
        is_time = moment_seconds - self._planned_seconds >= self._settings.replan_seconds
        snapshot = self._snapshots.take(jobs, alive, now_seconds, anew=is_time)
        self._planning.leave_out(self._snapshots.left_out, now_seconds)
        self.status.snapshot = snapshot
        self.status.believed = OfferEstimates(snapshot.offers, snapshot.lives)
        self.status.weights = {job.id: job.weight for job in snapshot.jobs}
        at_risk = self._market.at_risk
        self.status.checkpoint_intervals = checkpoint_intervals(
            jobs, snapshot, {held.job for held in alive if held.cloud_id in at_risk}
        )
        changes = replan_triggers(snapshot)
        is_news = self._settings.replan_on_news and changes != self._news
        if not is_news and not is_time:
            return None, ()
        self._news, self._planned_seconds = changes, moment_seconds
        unplanned_before = frozenset(self._planning.unplanned)
        try:
            plan, snapshot = self._planning.plan(snapshot)
        except PlanningFailed as error:
            self.status.failed_plans += 1
            self._planning_trouble = f"planning failed: {error}; the last decisions stay in force"
            return None, ()
        self._planning_trouble = None
        self.status.failed_plans += not self._planning.unplanned.keys() <= unplanned_before
        plan = self._with_minimums(plan, jobs, alive, now_seconds)
        self.status.solver_failures += bool(plan.notes)
        for note in plan.notes:
            _log.warning("planned without the solver: %s", note)
        if self._hands_off is None:
            self._note_reversals(plan, snapshot)
        decided = {decision.job: decision for decision in plan.decisions}
        left_out = {job.id for job in jobs} - decided.keys()
        self._in_force = {
            job_id: decision for job_id, decision in self._in_force.items() if job_id in left_out
        } | decided
        times = {**self.status.planned_seconds, **dict.fromkeys(decided, now_seconds)}
        self.status.planned_seconds = {job: times[job] for job in times.keys() & self._in_force}
        settled = {job.id for job in snapshot.jobs if job.trained == job.held}
        reported = tuple(
            self._with_hands_off(decision)
            for decision in plan.decisions
            if self._is_worth_reporting(decision, decision.job in settled)
        )
        if reported:
            with self._span("record decisions", tick=self._tick) as span:
                number = self._store.journal.add(self._tick, now_seconds, snapshot, plan, reported)
                span.put("plan", number)
        for decision in reported:
            _log.info("%s", decision.reason, extra={"job": decision.job})
        return plan, reported

    def _record_unplanned(self, jobs: Collection[str], now_seconds: float) -> None:
        """Record an event for each job that planning newly leaves out or includes again."""
        self._planning.keep(jobs)
        unplanned = self._planning.unplanned
        for job in unplanned.keys() - self._known_unplanned:
            text = f"can't be planned, others are: {unplanned[job].reason}"
            self._store.events.add(Event(now_seconds, "not planned", text, job))
        for job in self._known_unplanned.intersection(jobs) - unplanned.keys():
            self._store.events.add(Event(now_seconds, "planned again", "has a plan again", job))
        self._known_unplanned = frozenset(unplanned)

    def _with_minimums(
        self,
        plan: Plan,
        jobs: Sequence[JobRecord],
        alive: Sequence[HeldInstance],
        now_seconds: float,
    ) -> Plan:
        """Return the plan with a decision for each job that can't be planned for too long.

        After `LEFT_OUT_GRACE_SECONDS` such a job keeps the minimum of its bounds, and never more
        than it holds.
        """
        grouped = by_job(alive)
        added = []
        for job in jobs:
            unplanned = self._planning.unplanned.get(job.id)
            if (
                unplanned is not None
                and now_seconds - unplanned.since_seconds >= LEFT_OUT_GRACE_SECONDS
            ):
                held = held_allocation(grouped.get(job.id, ()))
                added.append(minimum_decision(job, held, unplanned, now_seconds))
        decisions = sorted((*plan.decisions, *added), key=lambda decision: decision.job)
        return replace(plan, decisions=tuple(decisions)) if added else plan

    def _carry_out(
        self, jobs: Mapping[str, JobRecord], alive: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Do what is possible now of the decisions for `jobs`, by id.

        A job whose shared budget is used up releases what it holds, even if no plan was made.
        """
        grouped = by_job(alive)
        in_force = {job: self._in_force[job] for job in self._in_force if job in jobs}
        for job_id in jobs if self.status.budgets else ():
            cause = self._budgets.accounts.used_up(jobs[job_id], now_seconds)
            if cause is not None:
                held = held_allocation(grouped.get(job_id, ()))
                in_force[job_id] = released(job_id, held, cause)
        planned = {job_id: job.spec for job_id, job in jobs.items()}
        for job_id, decision in in_force.items():
            release = partial(
                self._reconciler.release_surplus,
                *(decision, planned[job_id], grouped.get(job_id, []), now_seconds),
            )
            self._job_errors.attempt(job_id, "release of instances", release)
        for job_id, decision in in_force.items():
            order = partial(self._order, decision, planned[job_id], now_seconds)
            obstacle = self._job_errors.attempt(job_id, "order of instances", order)
            self._waiting.hinder(job_id, obstacle)

    def _order(self, decision: Decision, spec: JobSpec, now_seconds: float) -> str | None:
        """Carry a decision out; return why instances that it wants are not ordered now."""
        if decision.action is Action.STOP:
            self._stop(decision, now_seconds)
            return None
        alive, offers = self._store.instances.alive(), self.status.believed.offers
        return self._reconciler.order_missing(decision, spec, alive, offers, now_seconds)

    def _stop(self, decision: Decision, now_seconds: float) -> None:
        is_budget = decision.ground is ReasonCode.STOPS
        self._store.jobs.set_phase(
            *(decision.job, JobPhase.STOPPING, now_seconds, decision.reason),
            StopReason.JOB_BUDGET if is_budget else None,
        )
        if is_budget:
            self._store.events.add(Event(now_seconds, "budget", decision.reason, decision.job))

    def _note_reversals(self, plan: Plan, snapshot: Snapshot) -> None:
        """Record how long changes lasted that the plan reverses."""
        jobs, now_seconds = {job.id: job for job in snapshot.jobs}, snapshot.now_seconds
        for decision in plan.decisions:
            is_look_at = partial(is_look, decision, jobs.get(decision.job), snapshot.offers)
            lasted_seconds = self._reversals.note(decision, now_seconds, is_look_at)
            if lasted_seconds is not None:
                self._store.measurements.add_duration(
                    decision.job, None, REVERSED_DURATION, lasted_seconds
                )

    def _with_hands_off(self, decision: Decision) -> Decision:
        """Return the decision, with the reason if it is not carried out."""
        stays = decision.action in (Action.HOLD, Action.WAIT)
        if self._hands_off is None or stays:
            return decision
        return replace(decision, reason=f"{decision.reason}; not done: {self._hands_off}")

    def _is_worth_reporting(self, decision: Decision, is_settled: bool) -> bool:
        """Return whether to record a decision.

        A change always; a stay once the job has settled, and again for a reason of another code.
        """
        if decision.action is Action.HOLD and not is_settled:
            return False
        stays = decision.action in (Action.HOLD, Action.WAIT)
        fingerprint = (
            decision.action,
            decision.current,
            decision.target,
            (decision.ground, bool(decision.note)) if stays else None,
            self._hands_off,
        )
        is_news = self._reported.get(decision.job) != fingerprint
        self._reported[decision.job] = fingerprint
        return is_news

    def _prune(self, now_seconds: float) -> None:
        moment_seconds = self._time.monotonic()
        if moment_seconds - self._pruned_seconds < _PRUNE_SECONDS:
            return
        if self._store.retention.prune(now_seconds - self._settings.keep_seconds):
            return  # the next tick deletes more
        self._pruned_seconds = moment_seconds
        self._time.steady.forget_unused()
        jobs = self._store.jobs.alive()
        alive = {job.id for job in jobs}
        self._snapshots.forget(alive)
        self._lifecycle.stall_watch.forget(alive)
        self._reported = {job: self._reported[job] for job in self._reported.keys() & alive}
        self._budgets.spending.forget({job.spec.study for job in jobs if job.spec.study})

    def _update_status(self, plan: Plan | None, observed: Observed, now_seconds: float) -> None:
        self.status.offers = self._market.offers
        self.status.limits = self._market.limits
        self.status.providers = self._market.states
        self.status.strays = observed.strays
        self.status.asked_seconds = self._market.asked_seconds
        self.status.refused = self._market.refused
        self.status.unavailable = self._store.capacity.unavailable(now_seconds)
        if plan is not None:
            self.status.shadow_prices = plan.shadow_prices
            self.status.budget_plans = {budget.scope: budget for budget in plan.budgets}
        self.status.study_troubles = self._study_errors.by_subject()
        unplanned = self._planning.unplanned.items()
        self.status.job_troubles = {
            **self._waiting.troubles(self._planning_trouble, bool(self._market.offers)),
            **self._job_errors.by_subject(),
            **{job: f"can't be planned: {entry.reason}" for job, entry in unplanned},
        }
        self.status.alarms = self._snapshots.alarms
        self.status.stalls = self._lifecycle.stall_watch.stalls
        self.status.in_force = self._in_force
        self.status.planning_trouble = self._planning_trouble
        self.status.hands_off = self._hands_off
        if self._settings.fleet_usd is not None:
            spending, alive = self._budgets.spending, self._store.instances.alive()
            self.status.fleet_spent_usd = spending.of_fleet(alive, now_seconds)
        self.status.ticked_seconds = now_seconds
