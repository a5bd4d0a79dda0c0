"""Curves, outlooks and hypothetical terms of submitted jobs, from their stored models.

No provider is asked, and nothing is fitted but kinds of device that hypothetical bounds add, so
that an answer takes milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from autoscaler.clock import Clock
from autoscaler.controller.controller import PLANNED_PHASES, ControllerStatus
from autoscaler.controller.jobs.models import fit_models
from autoscaler.controller.jobs.programs import recalled
from autoscaler.controller.jobs.step_times import KnownStepTimes
from autoscaler.controller.observe.snapshots import (
    allowed_offers,
    job_snapshot,
    with_waits_of_gangs,
)
from autoscaler.controller.plan.isolation import PlanningFailed, planning_by
from autoscaler.controller.predict.circumstances import circumstances_of
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import JobRecord
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, Offer, limits_beside
from autoscaler.domain.plan import Decision
from autoscaler.domain.report import StepObservation, TrainingReport
from autoscaler.domain.shards import UnfitOffer
from autoscaler.domain.size_bars import BarKind, SizeBar, bar_of_bounds
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, ThroughputModel
from autoscaler.economics.forecasts.curves import CurvePoint, JobCurves, job_curves
from autoscaler.economics.forecasts.outlook import JobOutlook, NoOutlook, outlook
from autoscaler.economics.supply.caches import PlanningCaches
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.efficiency import efficiency
from autoscaler.policies.base import Policy
from autoscaler.store.repositories.journal import JournalEntry
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class MeasuredSize:
    """Best measured goodput of one size at its present speed, at the present noise scale.

    `batch` is the total batch in examples, and `steps` the decayed number of measured steps.
    """

    device_kind: str
    instances: int
    devices: int
    goodput: float
    batch: int
    steps: float


@dataclass(frozen=True, slots=True)
class LiveCurve:
    """Goodput curves of a job.

    Attributes:
        points: points of each offer by rising number of instances; offers in use come first.
        measured: best measured goodput of each size.
        held: point of the held allocation; None if nothing is held.
        candidate: point of the allocation that the last decision chose, or else of the best
            alternative to the held one; None if there is none.
        is_decided: whether the candidate was chosen, and the job changes to it.
        decision: last decision; None before the first.
        value_of_time_usd_per_hour: value of time that the objective stands for now.
        noise_examples: present noise scale in examples; None if it is not known.
        beyond: what forbids one more instance than the held ones; None: nothing, or a point of
            the curve has it.
        unfit: permitted offers that can't hold the job.
    """

    points: tuple[tuple[Offer, tuple[CurvePoint, ...]], ...]
    measured: tuple[MeasuredSize, ...]
    held: CurvePoint | None
    candidate: CurvePoint | None
    is_decided: bool
    decision: JournalEntry | None
    value_of_time_usd_per_hour: float
    noise_examples: float | None
    beyond: SizeBar | None = None
    unfit: tuple[UnfitOffer, ...] = ()


@dataclass(frozen=True, slots=True)
class NextDecision:
    """Decision of the next plan for a job, and the price of its target in $/h."""

    decision: Decision
    usd_per_hour: Decimal


class LiveJobs:
    """Predictions for submitted jobs at present offers and limits.

    Next plans are made by `policy`.
    """

    def __init__(
        self,
        store: Store,
        status: ControllerStatus,
        replan_seconds: float,
        clock: Clock,
        policy: Policy,
    ) -> None:
        self._store = store
        self._status = status
        self._replan_seconds = replan_seconds
        self._clock = clock
        self._policy = policy
        self._caches = PlanningCaches()

    def curve(self, job: JobRecord) -> LiveCurve | NoOutlook:
        """Return the curves of a job, or the reason why there are none."""
        state = self._snapshot(job)
        if isinstance(state, NoOutlook):
            return state
        job_state, snapshot = state
        with self._caches.lent() as cache:
            curves = job_curves(job_state, snapshot, cache)
        if curves is None:
            return NoOutlook("no offer can hold the job")
        curves = _with_whole_limits(curves, circumstances_of(self._status).limits)
        entries = self._store.journal.decisions(job.id, limit=1)
        entry = entries[0] if entries else None
        decided = None if entry is None else _decided_change(entry.decision, job_state.held)
        chosen = _point_among(curves.points.values(), decided)
        candidate = curves.alternative if chosen is None else chosen
        first = [point.allocation.offer for point in (curves.held, candidate) if point]
        offers = {offer.id: offer for offer in snapshot.offers}
        ids = sorted(curves.points, key=lambda offer: (_rank(offer, first), offer))
        observations = self._store.measurements.observations(job.id)
        return LiveCurve(
            points=tuple((offers[offer], curves.points[offer]) for offer in ids),
            measured=measured_sizes(observations, job.report),
            held=curves.held,
            candidate=candidate,
            is_decided=chosen is not None,
            decision=entry,
            value_of_time_usd_per_hour=curves.value_of_time_usd_per_hour,
            noise_examples=_noise_examples(job.report),
            beyond=_bar_beyond(job, job_state, curves, offers),
            unfit=job_state.unfit,
        )

    def outlook(
        self, job: JobRecord, objective: Objective | None = None, maximum: int | None = None
    ) -> JobOutlook | NoOutlook:
        """Return the outlook of a job, or the reason why there is none.

        Args:
            job: the job.
            objective: the objective to assume; None: its own.
            maximum: the most instances to assume; None: its own bound.
        """
        if job.phase.is_final:
            return NoOutlook("the job has ended")
        state = self._snapshot(job)
        if isinstance(state, NoOutlook):
            return state
        job_state, snapshot = state
        bounds = job_state.instances
        if maximum is not None:
            bounds = replace(bounds, maximum=maximum, minimum=min(bounds.minimum, maximum))
        job_state = replace(
            job_state, objective=objective or job_state.objective, instances=bounds
        )
        with self._caches.lent() as cache:
            return outlook(job_state, snapshot, cache)

    def next_decision(self, job: JobRecord, present: JobRecord) -> NextDecision | NoOutlook:
        """Return the next plan's decision for a job, or the reason why there is none.

        The plan is made for all jobs of the last tick. Nothing is stored.

        Args:
            job: the job with changes of objective, bounds or priority.
            present: the job as it is stored.
        """
        last = self._status.snapshot
        if job.phase not in PLANNED_PHASES:
            return NoOutlook(f"the job is {job.phase}")
        if last is None:
            return NoOutlook("the controller has not planned yet")
        state = self._snapshot(job)
        if isinstance(state, NoOutlook):
            return state
        changed = _as_planned(state[0], job, present, last)
        others = tuple(other for other in last.jobs if other.id != job.id)
        snapshot = replace(last, jobs=(*others, changed), undisturbed=last.undisturbed - {job.id})
        planning = planning_by(self._policy)
        try:
            plan, _ = planning.plan(snapshot)
        except PlanningFailed as error:
            return NoOutlook(f"planning fails: {error}")
        if job.id in planning.unplanned:
            return NoOutlook(f"can't be planned: {planning.unplanned[job.id].reason}")
        decision = next(made for made in plan.decisions if made.job == job.id)
        return NextDecision(decision, _usd_per_hour(decision.target, last.offers))

    def _models(self, job: JobRecord, offers: Sequence[Offer]) -> Mapping[str, ThroughputModel]:
        """Return the stored models of a job, and fitted ones for kinds that its bounds add."""
        models = self._store.measurements.models(job.id)
        usable = allowed_offers(job.spec.instances, offers) or tuple(offers)
        if not models or job.phase.is_final or {o.device_kind for o in usable} <= models.keys():
            return models
        step_times = KnownStepTimes(self._store).of(job, recalled(self._store, job.spec))
        return fit_models(job, step_times.all, usable)

    def _snapshot(self, job: JobRecord) -> tuple[JobSnapshot, Snapshot] | NoOutlook:
        """Return the state of a job, and offers with the limits that other jobs leave."""
        now_seconds, store = self._clock.now(), self._store
        now = circumstances_of(self._status, self._replan_seconds)
        if not now.offers:
            return NoOutlook("no provider has returned its offers yet")
        models = self._models(job, now.offers)
        if not models:
            return NoOutlook("no throughput model is fitted yet")
        others = Counter(held.offer for held in store.instances.alive() if held.job != job.id)
        snapshot = Snapshot(
            now_seconds=now_seconds,
            offers=now.offers,
            limits=limits_beside(now.limits, now.offers, others),
            jobs=(),
            unavailable=now.unavailable,
            replan_seconds=now.replan_seconds,
            lives=now.lives or {},
        )
        job_state = job_snapshot(
            store,
            job,
            store.instances.of_job(job.id),
            now.offers,
            models,
            now_seconds,
            recalled(store, job.spec),
        )
        return with_waits_of_gangs(job_state, now.offers), snapshot


def _as_planned(
    state: JobSnapshot, job: JobRecord, present: JobRecord, last: Snapshot
) -> JobSnapshot:
    """Return the state of a changed job, with what only the last tick's snapshot of it knows."""
    known = next((other for other in last.jobs if other.id == job.id), None)
    if known is None:
        return replace(state, weight=job.spec.priority)
    return replace(
        known,
        objective=state.objective,
        instances=state.instances,
        models=state.models if state.models.keys() - known.models.keys() else known.models,
        unfit=state.unfit,
        bounds_reason=state.bounds_reason,
        weight=known.weight * job.spec.priority / present.spec.priority,
    )


def _usd_per_hour(target: Allocation | None, offers: Iterable[Offer]) -> Decimal:
    """Return the price of an allocation in $/h; 0 for nothing."""
    if target is None:
        return Decimal(0)
    return next(o.usd_per_hour for o in offers if o.id == target.offer) * target.instances


def measured_sizes(
    observations: Iterable[StepObservation], report: TrainingReport | None
) -> tuple[MeasuredSize, ...]:
    """Return the best goodput of each size that was measured at its present speed.

    Sizes whose goodput depends on a noise scale that is not known yet are left out.
    """
    best: dict[tuple[str, int, int], MeasuredSize] = {}
    for seen in observations:
        batch = seen.devices * (seen.accumulation + 1) * seen.device_batch
        share = _efficiency(batch, report)
        if seen.era != 0 or share is None:
            continue
        goodput = batch / seen.step_seconds * share
        size = seen.device_kind, seen.instances, seen.devices
        if size not in best or best[size].goodput < goodput:
            best[size] = MeasuredSize(*size, goodput, batch, float(seen.steps))
    return tuple(best[size] for size in sorted(best))


def _efficiency(batch: int, report: TrainingReport | None) -> float | None:
    """Return useful examples for each example of a batch; None if that is not known."""
    if report is None:
        return None
    initial, noise = report.bounds.initial, report.noise
    if batch <= initial or not report.bounds.may_grow:
        return 1.0
    if noise is None or not is_usable(noise):
        return None
    return float(efficiency(noise.examples, initial, batch))


def _with_whole_limits(curves: JobCurves, limits: Iterable[Limit]) -> JobCurves:
    """Return curves whose bars have the limits' maxima, of which other jobs leave the room."""
    maxima = {limit.name: limit.maximum for limit in limits}

    def whole(point: CurvePoint) -> CurvePoint:
        bars = tuple(
            replace(bar, maximum=maxima.get(bar.name, bar.maximum))
            if bar.kind is BarKind.LIMIT
            else bar
            for bar in point.bars
        )
        return replace(point, bars=bars)

    return replace(
        curves,
        points={offer: tuple(map(whole, points)) for offer, points in curves.points.items()},
        held=None if curves.held is None else whole(curves.held),
        alternative=None if curves.alternative is None else whole(curves.alternative),
    )


def _bar_beyond(
    job: JobRecord, state: JobSnapshot, curves: JobCurves, offers: Mapping[str, Offer]
) -> SizeBar | None:
    """Return what forbids one more instance of the held offer; None if a point has that size."""
    if curves.held is None:
        return None
    held = curves.held.allocation
    points = curves.points.get(held.offer, ())
    if any(point.allocation.instances > held.instances for point in points):
        return None
    bar = bar_of_bounds(job.spec.instances, offers[held.offer], held.instances + 1)
    if bar is None and state.bounds_reason is not None:
        return SizeBar(BarKind.FIXED, place=state.bounds_reason)
    return bar


def _noise_examples(report: TrainingReport | None) -> float | None:
    noise = None if report is None else report.noise
    return noise.examples if noise is not None and is_usable(noise) else None


def _decided_change(decision: Decision, held: Allocation | None) -> Allocation | None:
    """Return the allocation to which a decision changes the job; None if it changes nothing."""
    return None if decision.target == held else decision.target


def _point_among(
    curves: Iterable[Sequence[CurvePoint]], allocation: Allocation | None
) -> CurvePoint | None:
    """Return the point of an allocation; None if the curves have none."""
    points = (point for curve in curves for point in curve)
    return next((point for point in points if point.allocation == allocation), None)


def _rank(offer: str, first: Sequence[str]) -> int:
    """Return the place of an offer in `first`, or the place after all of these."""
    return first.index(offer) if offer in first else len(first)
