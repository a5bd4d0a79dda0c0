"""Snapshots of the present state for policies, from the store and the market."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.controller.budgets.accounts import BudgetAccounts
from autoscaler.controller.budgets.spending import Spending
from autoscaler.controller.clock_jumps import awaits_retry
from autoscaler.controller.errors import error_text
from autoscaler.controller.jobs.causes import Causes
from autoscaler.controller.jobs.concurrency_history import ConcurrencyHistory
from autoscaler.controller.jobs.failed_offers import failed_offers
from autoscaler.controller.jobs.fitting import memory_needs, without_unfit
from autoscaler.controller.jobs.holdings import (
    group_of,
    held_allocation,
    standby_allocation,
    trained_allocation,
)
from autoscaler.controller.jobs.model_alarms import ModelAlarms
from autoscaler.controller.jobs.models import Models
from autoscaler.controller.jobs.programs import ProgramMemories, informed
from autoscaler.controller.jobs.sessions import (
    ONE_INSTANCE_TEXT,
    bounds_without_session,
    fixed_size_text,
    is_known_without_session,
)
from autoscaler.controller.jobs.step_times import KnownStepTimes
from autoscaler.controller.jobs.switching_costs import switching_costs
from autoscaler.controller.observe.studies import StudySnapshots
from autoscaler.controller.offers.estimates import MarketEstimator
from autoscaler.controller.offers.false_starts import false_starts
from autoscaler.controller.offers.market import Market
from autoscaler.controller.plan.triggers import standing
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.alarm import ModelAlarm
from autoscaler.domain.allocation import Allocation, Placement
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase, by_job
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobRecord
from autoscaler.domain.offer import Offer, limits_beside
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.snapshot import (
    GroundTruth,
    JobSnapshot,
    ServiceReceived,
    Snapshot,
    ThroughputModel,
)
from autoscaler.economics.pricing.gangs import gang_wait_seconds
from autoscaler.economics.pricing.shares import weights
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

# Assumed initial batch until the job reports its own.
_USUAL_BATCH = 32


@dataclass(frozen=True, slots=True)
class _CommonInputs:
    """Inputs that all job snapshots of one moment share; `weights` are by job."""

    now_seconds: float
    anew: bool
    crowds: ConcurrencyHistory
    weights: Mapping[str, float]


class Snapshots:
    """Source of snapshots of the jobs to be planned."""

    def __init__(
        self,
        store: Store,
        market: Market,
        settings: ControllerSettings,
        studies: StudySnapshots,
        spending: Spending,
        accounts: BudgetAccounts,
        truth: Callable[[str], GroundTruth | None] = lambda job: None,
    ) -> None:
        self._store = store
        self._market = market
        self._step_times = KnownStepTimes(store)
        self._models = Models(store)
        self._programs = ProgramMemories(store)
        self._estimator = MarketEstimator(store)
        self._studies = studies
        self._spending = spending
        self._accounts = accounts
        self._causes = Causes(store)
        self._replan_seconds = settings.replan_seconds
        self._truth = truth
        self._shares = settings.shares
        self._taken: dict[str, tuple[object, JobSnapshot]] = {}
        self._left_out: Mapping[str, str] = {}
        self._alarms = ModelAlarms(store)

    @property
    def alarms(self) -> Mapping[str, ModelAlarm]:
        """Jobs whose measured step times contradict their model, by id."""
        return self._alarms.raised

    @property
    def left_out(self) -> Mapping[str, str]:
        """Jobs whose snapshot the last `take` could not make, by id, each with the error."""
        return self._left_out

    def take(
        self,
        jobs: Sequence[JobRecord],
        alive: Sequence[HeldInstance],
        now_seconds: float,
        anew: bool = True,
    ) -> Snapshot:
        """Return the snapshot of these jobs for a policy; there must be offers.

        Jobs whose snapshot fails, and trials of studies with errors, are left out; their instances
        still count against the limits. Without `anew`, a job whose inputs are unchanged keeps its
        last snapshot.
        """
        grouped = by_job(alive)
        offers = self._estimator.believed(self._market.offers, alive, now_seconds)
        refused = self._store.capacity.unavailable(now_seconds)
        is_shared = any(job.spec.requested_devices is not None for job in jobs)
        common_inputs = _CommonInputs(
            now_seconds=now_seconds,
            anew=anew,
            crowds=ConcurrencyHistory(self._store.jobs.all() if is_shared else (), now_seconds),
            weights=weights(jobs, self._shares),
        )
        studies = self._studies.take(jobs, alive, offers, now_seconds)
        studies_in_trouble = self._studies.in_trouble
        job_snapshots = self._job_snapshots(
            [job for job in jobs if job.spec.study not in studies_in_trouble],
            grouped,
            common_inputs,
        )
        absent = {job.id for job in jobs} - {snapshot.id for snapshot in job_snapshots}
        held = Counter(held.offer for job in absent for held in grouped.get(job, ()))
        limits = self._market.limits_beside_unsold(alive)
        snapshot = Snapshot(
            now_seconds=now_seconds,
            offers=offers,
            limits=limits_beside(limits, offers, held) if held else limits,
            jobs=tuple(with_waits_of_gangs(job, offers) for job in job_snapshots),
            unavailable=refused - self._estimator.waited_for(offers, now_seconds),
            replan_seconds=self._replan_seconds,
            lives=self._estimator.lives(offers),
            studies=studies,
            budgets=tuple(standing.state(now_seconds) for standing in self._accounts.latest),
        )
        return replace(snapshot, undisturbed=self._causes.undisturbed(snapshot, alive))

    def _job_snapshots(
        self,
        jobs: Sequence[JobRecord],
        instances: Mapping[str, Sequence[HeldInstance]],
        common_inputs: _CommonInputs,
    ) -> tuple[JobSnapshot, ...]:
        """Return the snapshots of these jobs, and record the jobs for which it fails."""
        snapshots: list[JobSnapshot] = []
        left_out: dict[str, str] = {}
        self._models.restore([job.id for job in jobs])
        for job in jobs:
            try:
                snapshots.append(self._told_of(job, instances.get(job.id, ()), common_inputs))
            except Exception as error:  # a failure of one job must not reach the others
                text = error_text(error)
                left_out[job.id] = text
                if self._left_out.get(job.id) != text:
                    fields = {"job": job.id}
                    _log.exception("no snapshot of job %s can be taken", job.id, extra=fields)
        self._left_out = left_out
        self._models.save()
        return tuple(snapshots)

    def _told_of(
        self, job: JobRecord, instances: Sequence[HeldInstance], common_inputs: _CommonInputs
    ) -> JobSnapshot:
        """Return the snapshot of one job: the last one if its inputs are unchanged."""
        offers, now_seconds = self._market.offers, common_inputs.now_seconds
        usable = allowed_offers(job.spec.instances, offers) or offers
        memory = self._programs.of(job)
        step_times = self._step_times.of(job, memory)
        models = self._models.of(job, step_times, usable, now_seconds)
        self._programs.learn(job, step_times, now_seconds)
        self._alarms.check(job, step_times.own, models, instances, now_seconds)
        budgets = self._accounts.scopes(job)
        known = standing(job, instances, models, now_seconds)
        fingerprint = known, common_inputs.weights[job.id], budgets
        before = self._taken.get(job.id)
        if not common_inputs.anew and before is not None and before[0] == fingerprint:
            return before[1]
        snapshot = job_snapshot(
            self._store, job, instances, offers, models, now_seconds, memory, self._spending
        )
        queue_seconds = self._estimator.queue_seconds(instances)
        snapshot = replace(
            snapshot,
            weight=common_inputs.weights[job.id],
            budgets=budgets,
            switching=replace(snapshot.switching, fill_seconds=queue_seconds),
            held_reclaims_per_hour=self._estimator.reclaims_per_hour(
                group_of(snapshot.held, instances), now_seconds
            ),
        )
        if job.spec.study is not None or job.spec.requested_devices is not None:
            snapshot = self._with_service(job, instances, snapshot, common_inputs)
        self._taken[job.id] = fingerprint, snapshot
        return snapshot

    def _with_service(
        self,
        job: JobRecord,
        instances: Sequence[HeldInstance],
        snapshot: JobSnapshot,
        common_inputs: _CommonInputs,
    ) -> JobSnapshot:
        """Return the snapshot of a trial or a rigid job with its service so far."""
        offers, now_seconds = self._market.offers, common_inputs.now_seconds
        all_instances = self._store.instances.of_job(job.id, include_ended=True)
        return replace(
            snapshot,
            placement=placement_of(instances, offers),
            service=replace(
                service_of(all_instances, offers, now_seconds),
                mean_active_jobs=common_inputs.crowds.mean_jobs(job.submitted_seconds),
            ),
            truth=self._truth(job.id),
        )

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop the cached data of all jobs but these."""
        kept_jobs = set(jobs)
        self._taken = {job: snapshot for job, snapshot in self._taken.items() if job in kept_jobs}
        self._step_times.forget(kept_jobs)
        self._models.forget(kept_jobs)
        self._programs.forget(kept_jobs)
        self._alarms.forget(kept_jobs)


def job_snapshot(
    store: Store,
    job: JobRecord,
    instances: Sequence[HeldInstance],
    offers: Sequence[Offer],
    models: Mapping[str, ThroughputModel],
    now_seconds: float,
    memory: ProgramMemory | None = None,
    spending: Spending | None = None,
) -> JobSnapshot:
    """Return the snapshot of one job from its store and its fitted models.

    `offers` are all offers. `memory` is the memory of the job's program. Without
    `spending` the cost is read from the store.
    """
    report, spec = job.report, job.spec
    total = total_examples(job)
    progress = report.progress_examples if report else 0.0
    planned = _plannable(
        [instance for instance in instances if not _is_shared(instance, offers)], offers, models
    )
    held = held_allocation(planned)
    needs = memory_needs(job, offers, memory)
    bounds = without_unfit(spec.instances, offers, needs.unfit, held)
    avoided = _avoided(store, job, offers, now_seconds)
    bounds = _without_offers(bounds, offers, avoided, held) if avoided else bounds
    is_sessionless = is_known_without_session(store, job)
    if is_sessionless:
        bounds = bounds_without_session(bounds, spec.parallelism, offers)
    spent_usd = (spending or Spending(store)).of_job(job.id, now_seconds)
    snapshot = JobSnapshot(
        id=job.id,
        objective=spec.objective,
        instances=_fixed_at_held(bounds, held) if awaits_retry(job, now_seconds) else bounds,
        batch=needs.within(report.bounds if report else bounds_of(spec.batch)),
        submitted_seconds=job.submitted_seconds,
        progress_examples=progress,
        remaining_examples=None if total is None else max(total - progress, 0.0),
        spent_usd=float(spent_usd),
        held=held,
        trained=trained_allocation(planned),
        standby=standby_allocation(planned),
        models=models,
        noise=report.noise if report else None,
        quality=report.quality if report else (),
        as_of_seconds=now_seconds,
        switching=switching_costs(
            job,
            store.measurements.durations(job.id),
            offers,
            now_seconds,
            {} if memory is None else memory.start_seconds,
        ),
        requested_devices=spec.requested_devices,
        study=spec.study,
        ordered_seconds=max(
            (order.ordered_seconds for order in group_of(held, planned)), default=None
        ),
        waited_seconds=(job.started_seconds or now_seconds) - job.submitted_seconds,
        bounds_reason=ONE_INSTANCE_TEXT if is_sessionless else fixed_size_text(job),
        parallelism=spec.parallelism,
        unfit=needs.unfit,
    )
    return snapshot if memory is None else informed(snapshot, memory)


def with_waits_of_gangs(job: JobSnapshot, offers: Sequence[Offer]) -> JobSnapshot:
    """Return the snapshot with the waits for capacity of a job that orders gangs of instances."""
    if job.parallelism.shard == 1:
        return job
    gangs = {offer.id: job.gang_instances(offer) or 1 for offer in offers}
    waits = {
        offer.id: gang_wait_seconds(offer.fill_seconds, gangs[offer.id])
        for offer in offers
        if offer.fill_seconds > 0 and gangs[offer.id] > 1
    }
    if not waits:
        return job
    known = job.switching.fill_seconds
    return replace(job, switching=replace(job.switching, fill_seconds={**waits, **known}))


def _is_shared(held: HeldInstance, offers: Sequence[Offer]) -> bool:
    return any(offer.shared and offer.id == held.offer for offer in offers)


def _plannable(
    instances: Sequence[HeldInstance],
    offers: Sequence[Offer],
    models: Mapping[str, ThroughputModel],
) -> Sequence[HeldInstance]:
    """Return the instances without those in a queue, which a new plan may order again.

    Once part of an order has capacity, its rest counts as starting until that size is measured.
    Otherwise the job would settle on the first instance, and the rest would be cancelled.
    """
    launched = [instance for instance in instances if instance.phase is not InstancePhase.QUEUED]
    group = held_allocation(launched) if len(launched) < len(instances) else None
    if group is None:
        return launched
    kinds = {offer.id: offer.device_kind for offer in offers}
    model = models.get(kinds.get(group.offer, ""))
    is_measured = model is not None and (group.instances, group.devices) in model.measured
    if is_measured and trained_allocation(launched) == group:
        return launched
    return [held for held in instances if held in launched or held.offer == group.offer]


def total_examples(job: JobRecord) -> float | None:
    """Return the useful examples of the whole job, stated by owner or script; None if unknown."""
    return job.spec.total_examples or (job.report.total_examples if job.report else None)


def allowed_offers(bounds: InstanceBounds, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Return the offers that a job may use."""
    return tuple(offer for offer in offers if bounds.permits(offer))


def missing_gpus(bounds: InstanceBounds, offers: Sequence[Offer]) -> str | None:
    """Return why no offer has the GPUs that a job may use; None if the reason is another."""
    gpus = bounds.gpus
    if gpus is None or any(gpu.is_of(offer) for gpu in gpus for offer in offers):
        return None
    kinds = sorted({f"{offer.device_kind}:{offer.devices}" for offer in offers})
    return f"no offer has {' or '.join(map(str, gpus))}: there are {', '.join(kinds)}"


def placement_of(instances: Sequence[HeldInstance], offers: Sequence[Offer]) -> Placement | None:
    """Return the devices that a job holds on machines that jobs share; None for none."""
    shared_offers = {offer.id for offer in offers if offer.shared}
    shares = {
        held.offer: held.devices_used
        for held in instances
        if held.desired is Desired.PRESENT and held.offer in shared_offers
    }
    return Placement(tuple(sorted(shares.items()))) if shares else None


def service_of(
    every: Sequence[HeldInstance], offers: Sequence[Offer], now_seconds: float
) -> ServiceReceived:
    """Return the service that a job has had; `every` are all instances it ever had."""
    training_starts = [
        held.training_seconds for held in every if held.training_seconds is not None
    ]
    kinds = {offer.id: offer.device_kind for offer in offers}
    attained: dict[str, float] = defaultdict(float)
    for held in every:
        if held.training_seconds is not None:
            seconds = (held.draining_seconds or now_seconds) - held.training_seconds
            attained[kinds.get(held.offer, "")] += held.devices_used * seconds
    return ServiceReceived(
        attained_device_seconds=sum(attained.values()),
        restarts=max(len(set(training_starts)) - 1, 0),
        started_seconds=min(training_starts, default=None),
        changed_seconds=max(training_starts, default=None),
        kind_device_seconds=attained,
    )


def bounds_of(batch: BatchSpec) -> BatchBounds:
    """Return the batch bounds of a job until it reports its own."""
    initial = batch.initial or _USUAL_BATCH
    return BatchBounds(
        initial=initial,
        maximum=max(batch.maximum or initial, initial),
        device_maximum=batch.device_maximum or initial,
        adaptive=batch.adaptive,
        kind_maxima=batch.kind_maxima,
    )


def _avoided(
    store: Store, job: JobRecord, offers: Sequence[Offer], now_seconds: float
) -> dict[str, str]:
    """Return the offers that the job does not take for now, each with the reason."""
    return {
        **false_starts(store, job.id, now_seconds),
        **failed_offers(store, job, offers, now_seconds),
    }


def _without_offers(
    bounds: InstanceBounds,
    offers: Sequence[Offer],
    avoided: Collection[str],
    held: Allocation | None,
) -> InstanceBounds:
    """Return the bounds without avoided offers, if others are left; a held offer stays."""
    held_offer = held.offer if held is not None else None
    allowed = (offer.id for offer in allowed_offers(bounds, offers))
    remaining = tuple(offer for offer in allowed if offer not in avoided or offer == held_offer)
    return replace(bounds, offers=remaining) if remaining else bounds


def _fixed_at_held(bounds: InstanceBounds, held: Allocation | None) -> InstanceBounds:
    """Return the bounds of a job that waits for its retry: it neither grows nor shrinks."""
    if held is None:
        return bounds
    count = held.instances
    return replace(bounds, minimum=count, maximum=count, offers=(held.offer,), maxima=())
