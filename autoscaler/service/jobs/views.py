"""Jobs, instances and costs as messages of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from autoscaler.controller.act.job_end import trial_ending
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.predicted_goodput import (
    predicted_goodput,
    remaining_seconds_of,
)
from autoscaler.controller.jobs.sessions import is_known_without_session, sessionless_text
from autoscaler.controller.offers.false_starts import false_starts, false_starts_everywhere
from autoscaler.controller.predict.forecasts import FixedSize
from autoscaler.domain.access import NO_TEAM, OWNER
from autoscaler.domain.errors import SpecError
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.offer import is_stale
from autoscaler.domain.plan import Action, Decision
from autoscaler.domain.report import Failure
from autoscaler.domain.spending import DailyCost
from autoscaler.domain.time_use import TimeUse
from autoscaler.domain.trial import TrialEnding
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.running import CostSums
from autoscaler.service.instances.assignments import Assignments
from autoscaler.service.jobs.stored_costs import StoredCosts
from autoscaler.service.versions import job_version
from autoscaler.store.repositories.events import Event
from autoscaler.store.repositories.journal import JournalEntry
from autoscaler.store.repositories.time_uses import day_of
from autoscaler.store.store import Store
from autoscaler.wire.messages import (
    CostView,
    DecisionView,
    EventView,
    FleetView,
    ForecastView,
    InstanceView,
    JobView,
    OffersView,
    OfferView,
    TransferView,
)

_EVENTS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _StoredFacts:
    """Facts of several jobs, by job, which the store reads in a few statements for all."""

    spent_usd: Mapping[str, Decimal]
    rates_usd_per_hour: Mapping[str, Decimal]
    decisions: Mapping[str, JournalEntry]
    failures: Mapping[str, Failure]
    ended_instances: Mapping[str, tuple[HeldInstance, ...]]


class Views:
    """Builder of the API's messages from the store and the controller's status."""

    def __init__(
        self, store: Store, status: ControllerStatus, assignments: Assignments, version: str
    ) -> None:
        self._store = store
        self._status = status
        self._assignments = assignments
        self._version = version
        self.stored_costs = StoredCosts(store)

    def _checkpoint_place(self, job: JobRecord) -> str:
        """Return the location of a job's checkpoints, for display.

        A job of an earlier release may name an invalid location; it is shown as it is.
        """
        try:
            return self._assignments.checkpoint_place(job)
        except SpecError:
            return job.spec.checkpoint.directory or ""

    def job(self, job: JobRecord, now_seconds: float, with_events: bool = False) -> JobView:
        """Return the view of one job."""
        events = self._events(job.id) if with_events else ()
        return self._job(job, now_seconds, self._facts((job,), now_seconds), events)

    def jobs(self, jobs: Sequence[JobRecord], now_seconds: float) -> tuple[JobView, ...]:
        """Return the views of jobs without their events, in the same order."""
        facts = self._facts(jobs, now_seconds)
        return tuple(self._job(job, now_seconds, facts) for job in jobs)

    def _facts(self, jobs: Sequence[JobRecord], now_seconds: float) -> _StoredFacts:
        store, ids = self._store, [job.id for job in jobs]
        failed = [job.id for job in jobs if job.attempt > 1 or job.phase is JobPhase.FAILED]
        stopped_trials = [job.id for job in jobs if _may_have_ended_trial(job)]
        ledger = Ledger(store.ledger.of_jobs(ids))
        return _StoredFacts(
            ledger.by_job(now_seconds),
            ledger.rates_usd_per_hour(now_seconds),
            store.journal.latest(ids),
            store.reports.last_failures(failed) if failed else {},
            store.instances.ended_of_jobs(stopped_trials) if stopped_trials else {},
        )

    def _job(
        self,
        job: JobRecord,
        now_seconds: float,
        facts: _StoredFacts,
        events: tuple[EventView, ...] = (),
    ) -> JobView:
        instances = self._store.instances.of_job(job.id)
        decision, failure = facts.decisions.get(job.id), facts.failures.get(job.id)
        predicted = self._predicted(job, instances)
        is_sessionless = not job.phase.is_final and is_known_without_session(self._store, job)
        return JobView(
            id=job.id,
            study=job.spec.study,
            phase=job.phase,
            objective=job.spec.objective,
            bounds=job.spec.instances,
            submitted_seconds=job.submitted_seconds,
            started_seconds=job.started_seconds,
            ended_seconds=job.ended_seconds,
            instances=tuple(self.instance(held) for held in instances),
            spent_usd=facts.spent_usd.get(job.id, Decimal(0)),
            usd_per_hour=facts.rates_usd_per_hour.get(job.id, Decimal(0)),
            report=job.report,
            reported_seconds=job.reported_seconds,
            goodput_predicted=predicted,
            eta_seconds=remaining_seconds_of(job, predicted) if instances else None,
            decision=None if decision is None else self._decision(decision),
            attempt=job.attempt,
            stop_reason=job.stop_reason,
            cause=job.cause or (sessionless_text(job) if is_sessionless else None),
            last_lines=job.last_lines,
            checkpoint_directory=self._checkpoint_place(job),
            events=events,
            false_starts=self._false_starts(job, now_seconds),
            hands_off=None if job.phase.is_final else self._status.hands_off,
            weight=self._status.weights.get(job.id, job.spec.priority),
            priority=job.spec.priority,
            person=job.spec.person,
            team=job.spec.team,
            trouble=None if job.phase.is_final else self._status.job_troubles.get(job.id),
            is_sessionless=is_sessionless,
            alarm=None if job.phase.is_final else self._status.alarms.get(job.id),
            trial_ending=_trial_ending(job, instances, facts),
            version=job_version(job),
            stall=None if job.phase.is_final else self._status.stalls.get(job.id),
            failure_category=None if failure is None else failure.category,
        )

    def instance(self, held: HeldInstance) -> InstanceView:
        """Return the view of one instance."""
        return InstanceView(
            id=held.id,
            job=held.job,
            offer=held.offer,
            phase=held.phase,
            devices=held.devices_used,
            usd_per_hour=held.usd_per_hour,
            requested_seconds=held.requested_seconds,
            reclaim_seconds=held.reclaim_seconds,
            cloud_id=held.cloud_id,
            gang=None if held.seat is None else held.seat.text,
        )

    def controller(self) -> str:
        """Return the id of the controller that these views are of."""
        return self._store.settings.controller_id()

    def fleet(self, now_seconds: float) -> FleetView:
        """Return the view of offers, instances and the controller's state."""
        status = self._status
        today = day_of(now_seconds)
        time_today = self._store.time_uses.days(today).get(today, TimeUse())
        shadow_prices = {
            name: price * 3600 for name, price in status.shadow_prices.items() if price > 0
        }
        return FleetView(
            controller=self._store.settings.controller_id(),
            version=self._version,
            offers=status.offers,
            limits=status.limits,
            unavailable=status.unavailable,
            instances=tuple(self.instance(held) for held in self._store.instances.alive()),
            usd_per_hour=self.stored_costs.usd_per_hour(now_seconds),
            shadow_prices_usd_per_hour=shadow_prices,
            ticked_seconds=status.ticked_seconds,
            trouble=status.trouble,
            hands_off=status.hands_off,
            failed_plans=status.failed_plans,
            solver_failures=status.solver_failures,
            silent=status.silent,
            strays=status.strays,
            refusals={
                offer: refusal.reason
                for offer, refusal in self._store.capacity.refusals().items()
                if offer in status.unavailable
            },
            productive_share=time_today.useful_share,
            time_today=time_today,
            notes={
                name: state.condition.notes
                for name, state in status.providers.items()
                if state.condition.notes
            },
        )

    def offers(self, now_seconds: float) -> OffersView:
        """Return the view of the offers and their prices."""
        status = self._status
        views = []
        for offer in status.offers:
            asked_seconds = status.asked_seconds.get(offer.provider)
            priced_seconds = (
                asked_seconds if offer.priced_seconds is None else offer.priced_seconds
            )
            age_seconds = None if priced_seconds is None else now_seconds - priced_seconds
            views.append(
                OfferView(
                    offer=offer,
                    price_source=offer.price_source or offer.provider,
                    price_age_seconds=age_seconds,
                    is_stale=is_stale(offer.purchase, age_seconds),
                    is_unavailable=offer.id in status.unavailable,
                )
            )
        return OffersView(tuple(views), status.refused)

    def costs(self, now_seconds: float) -> CostView:
        """Return the view of the costs so far."""
        sums = self.stored_costs.sums(now_seconds)
        by_job, by_day = sums.by_job, sums.by_day()
        owners = {job.id: job.spec.owner for job in self._store.jobs.all()}
        persons = {job: owner.person for job, owner in owners.items()}
        teams = {job: owner.team or NO_TEAM for job, owner in owners.items()}
        return CostView(
            total_usd=sums.total_usd,
            usd_per_hour=sums.usd_per_hour,
            by_job=by_job,
            by_offer=sums.by_offer(),
            by_day={day.isoformat(): usd for day, usd in by_day.items()},
            by_month=_summed((f"{day:%Y-%m}", usd) for day, usd in by_day.items()),
            by_person=_summed((persons.get(job, OWNER), usd) for job, usd in by_job.items()),
            by_team=_summed((teams.get(job, NO_TEAM), usd) for job, usd in by_job.items()),
            paid_already=sums.paid_already,
            transfer=_transfer_view(sums),
        )

    def daily_costs(self, first: date, last: date, now_seconds: float) -> tuple[DailyCost, ...]:
        """Return the costs by day (UTC) and offer, from `first` to `last` inclusive."""
        costs = self.stored_costs.sums(now_seconds).daily()
        return tuple(cost for cost in costs if first <= cost.day <= last)

    def _decision(self, entry: JournalEntry) -> DecisionView:
        """Return the view of a job's latest recorded decision, which may still be in force."""
        view, in_force = decision_view(entry), self._status.in_force.get(entry.decision.job)
        if in_force is None or _destination(in_force) != _destination(entry.decision):
            return view
        if _is_same_stay(in_force, entry.decision):
            # The journal has a stay once for each ground; plans since then have newer figures.
            newest = decision_at(entry.at_seconds, in_force)
            view = replace(newest, plan=entry.plan)
        return replace(view, planned_seconds=self._status.planned_seconds.get(view.job))

    def _predicted(self, job: JobRecord, instances: Sequence[HeldInstance]) -> float | None:
        if not any(held.phase is InstancePhase.TRAINING for held in instances):
            return None
        kinds = {offer.id: offer.device_kind for offer in self._status.offers}
        models = self._store.measurements.models(job.id)
        return predicted_goodput(job.report, instances, models, kinds)

    def _false_starts(self, job: JobRecord, now_seconds: float) -> tuple[str, ...]:
        if job.phase.is_final:
            return ()
        everywhere = false_starts_everywhere(self._store, job.id, now_seconds)
        if everywhere is not None:
            return (everywhere,)
        return tuple(false_starts(self._store, job.id, now_seconds).values())

    def _events(self, job: str) -> tuple[EventView, ...]:
        return tuple(event_view(event) for event in self._store.events.latest(job, _EVENTS_SHOWN))


def _may_have_ended_trial(job: JobRecord) -> bool:
    return job.spec.study is not None and job.phase is JobPhase.STOPPED


def _trial_ending(
    job: JobRecord, alive: Sequence[HeldInstance], facts: _StoredFacts
) -> TrialEnding | None:
    """Return the end of the trial of a stopped job; None without one."""
    if not _may_have_ended_trial(job):
        return None
    return trial_ending((*alive, *facts.ended_instances.get(job.id, ())))


def _transfer_view(sums: CostSums) -> TransferView | None:
    by_job = sums.transfers_by_job
    if not by_job:
        return None
    sent = [cost for cost in sums.daily() if cost.transfer_usd]
    return TransferView(
        total_usd=sum(by_job.values(), Decimal(0)),
        by_job=by_job,
        by_offer=_summed((cost.offer, cost.transfer_usd) for cost in sent),
        by_day=_summed((cost.day.isoformat(), cost.transfer_usd) for cost in sent),
    )


def decision_view(entry: JournalEntry) -> DecisionView:
    """Return the view of a decision of the journal."""
    return replace(decision_at(entry.at_seconds, entry.decision), plan=entry.plan)


def _destination(decision: Decision) -> tuple[object, ...]:
    """Return what a job holds once a decision is carried out."""
    return decision.action is Action.STOP, decision.target, decision.placement


def _is_same_stay(decision: Decision, recorded: Decision) -> bool:
    """Return whether both let the job stay with what it holds."""
    stays = recorded.action in (Action.HOLD, Action.WAIT)
    return stays and (decision.action, decision.current) == (recorded.action, recorded.current)


def decision_at(at_seconds: float, decision: Decision) -> DecisionView:
    """Return the view of a decision of a time."""
    return DecisionView(
        at_seconds=at_seconds,
        job=decision.job,
        action=decision.action,
        reason=decision.reason,
        current=decision.current,
        target=decision.target,
        figures=decision.figures,
        ground=decision.ground,
        note=decision.note,
    )


def forecast_view(size: FixedSize) -> ForecastView:
    """Return the view of a forecast at one fixed size."""
    forecast = size.forecast
    return ForecastView(
        allocation=forecast.allocation,
        measured=size.measured,
        seconds=forecast.seconds.median,
        seconds_90=forecast.seconds.ninety_percent,
        usd=forecast.usd.median,
        usd_90=forecast.usd.ninety_percent,
    )


def event_view(event: Event) -> EventView:
    """Return the view of an event."""
    return EventView(event.at_seconds, event.job, event.kind, event.text)


def _summed(parts: Iterable[tuple[str, Decimal]]) -> dict[str, Decimal]:
    """Return the sums of the amounts by name."""
    sums: dict[str, Decimal] = {}
    for name, usd in parts:
        sums[name] = sums.get(name, Decimal(0)) + usd
    return sums
