"""Results of a run: duration and cost of each job, and totals."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal

import numpy as np

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.offer import Offer
from autoscaler.ledger.ledger import Ledger
from autoscaler.simulator.fairness import (
    UNFAIR_RHO,
    fairness_ratio,
    mean_active_jobs,
    share_above,
    worst,
)
from autoscaler.simulator.simulation import Ran, SimulationRun
from autoscaler.simulator.studies.results import StudyResult, study_result
from autoscaler.simulator.timeline import Stay, TimelineEntry, stays_of, timeline_of
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of one job.

    Attributes:
        gpu_seconds: device-seconds at work.
        paid_gpu_seconds: device-seconds of paid instances.
        exclusive_s: duration alone on the requested devices; None if that was not profiled.
        ftf_rho: `fairness_ratio` by the number of jobs in the workload.
        ftf_rho_themis: `fairness_ratio` by the mean number of jobs during the job.
        stopped: reason why its objective ended the job with work left; None if it finished.
        deadline_s: deadline; None if it has none.
    """

    name: str
    application: str
    submitted_s: float
    started_s: float
    finished_s: float
    cost_usd: float
    gpu_seconds: float
    paid_gpu_seconds: float
    gpus_requested: int
    restarts: int
    pause_s: float
    exclusive_s: float | None
    ftf_rho: float | None
    ftf_rho_themis: float | None
    timeline: tuple[TimelineEntry, ...]
    stopped: str | None = None
    deadline_s: float | None = None

    @property
    def completion_seconds(self) -> float:
        """Time from submission to end (JCT)."""
        return self.finished_s - self.submitted_s


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals over all jobs.

    Completion and fairness cover the jobs that finished, or all jobs if all were `stopped`.
    Fairness figures are None if nothing is known.

    Attributes:
        unfair_share: share of jobs with `ftf_rho` above `UNFAIR_RHO`.
        sharing_incentive: share of jobs with `ftf_rho_themis` up to `UNFAIR_RHO`, which are no
            worse off than with an equal share of their own.
        gpu_utilisation: share of paid device time at work; on a pool, of all device time until the
            last job ended.
        failed_plans: as in `ControllerStatus`.
        solver_failures: as in `ControllerStatus`.
    """

    avg_jct_s: float
    p99_jct_s: float
    makespan_s: float
    worst_ftf_rho: float | None
    unfair_share: float | None
    sharing_incentive: float | None
    gpu_utilisation: float
    cost_usd: float
    gpu_hours: float
    restarts: int
    decisions: int
    decision_ms_p50: float
    decision_ms_p95: float
    stopped: int = 0
    failed_plans: int = 0
    solver_failures: int = 0


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """One decision in the journal: a change, or no change for a new reason."""

    at_s: float
    job: str
    action: str
    ground: str
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """Document of `castor simulate --json`; `study` is None if no study was simulated."""

    policy: str
    seed: int
    jobs: tuple[JobResult, ...]
    totals: Totals
    decisions: tuple[DecisionEntry, ...] = ()
    study: StudyResult | None = None


def result_of(
    policy: str, seed: int, run: SimulationRun, store: Store, offers: Mapping[str, Offer]
) -> Result:
    """Return the result of a run, with costs from the ledger in `store`."""
    entries = store.ledger.entries()
    costs, stays = Ledger(entries).by_job(run.ended_seconds), stays_of(entries)
    active = mean_active_jobs(
        [ran.arrival.submitted_seconds for ran in run.jobs],
        [ran.finished_seconds for ran in run.jobs],
    )
    crowd = _Crowd(len(run.jobs), _pool_devices(offers))
    jobs = tuple(
        _job(
            ran,
            _record(costs.get(ran.job, Decimal(0)), ran, stays.get(ran.job, ()), store, offers),
            crowd,
            float(mean),
        )
        for ran, mean in zip(run.jobs, active, strict=True)
    )
    totals = replace(
        _totals(jobs, crowd.devices, run.decision_seconds),
        failed_plans=run.failed_plans,
        solver_failures=run.solver_failures,
    )
    study = None if run.driver is None else study_result(run.driver, store)
    return Result(policy, seed, jobs, totals, _decisions(run, store), study)


def as_document(result: Result) -> dict[str, object]:
    """Return the result as JSON-compatible values."""
    document = asdict(result)
    if result.study is None:
        del document["study"]
    return document


def _decisions(run: SimulationRun, store: Store) -> tuple[DecisionEntry, ...]:
    names = {ran.job: ran.arrival.name for ran in run.jobs}
    decisions = store.journal.decisions(limit=sys.maxsize)
    return tuple(
        DecisionEntry(
            at_s=entry.at_seconds,
            job=names[entry.decision.job],
            action=entry.decision.action.value,
            ground=entry.decision.ground,
            reason=entry.decision.reason,
        )
        for entry in reversed(decisions)
    )


@dataclass(frozen=True, slots=True)
class _Record:
    """Store's data on one job: its bill, timeline and deadline."""

    usd: Decimal
    device_seconds: float
    timeline: tuple[TimelineEntry, ...]
    deadline_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Number of jobs of a workload, and of devices they share; None: devices are bought."""

    jobs: int
    devices: int | None


def _pool_devices(offers: Mapping[str, Offer]) -> int | None:
    if not all(offer.shared for offer in offers.values()):
        return None
    return sum(offer.devices for offer in offers.values())


def _record(
    usd: Decimal, ran: Ran, stays: Sequence[Stay], store: Store, offers: Mapping[str, Offer]
) -> _Record:
    instances = store.instances.of_job(ran.job, include_ended=True)
    shared = [held for held in instances if offers[held.offer].shared]
    devices = sum(_held_seconds(held) * held.devices_used for held in shared)
    devices += sum(
        (stay.to_seconds - stay.from_seconds) * offers[stay.offer].devices
        for stay in stays
        if not offers[stay.offer].shared
    )
    deadline_seconds = store.jobs.get(ran.job).spec.objective.deadline_seconds
    return _Record(usd, devices, timeline_of(ran.spans, stays, offers), deadline_seconds)


def _job(ran: Ran, record: _Record, crowd: _Crowd, active: float) -> JobResult:
    arrival, exclusive = ran.arrival, ran.exclusive_seconds
    lasted = ran.finished_seconds - arrival.submitted_seconds
    return JobResult(
        name=arrival.name,
        application=arrival.application,
        submitted_s=arrival.submitted_seconds,
        started_s=ran.started_seconds,
        finished_s=ran.finished_seconds,
        cost_usd=float(record.usd),
        gpu_seconds=sum(span.seconds * span.devices for span in ran.spans),
        paid_gpu_seconds=record.device_seconds,
        gpus_requested=arrival.devices_requested,
        restarts=max(ran.starts - 1, 0),
        pause_s=sum(span.seconds for span in ran.spans if span.batch is None),
        exclusive_s=exclusive,
        ftf_rho=fairness_ratio(lasted, exclusive, crowd.jobs, crowd.devices),
        ftf_rho_themis=fairness_ratio(lasted, exclusive, active, crowd.devices),
        timeline=record.timeline,
        stopped=ran.stopped,
        deadline_s=record.deadline_seconds,
    )


def _totals(
    jobs: Sequence[JobResult], pool_devices: int | None, decision_seconds: Sequence[float]
) -> Totals:
    finished = [job for job in jobs if job.stopped is None]
    counted = finished or jobs
    completion = [job.completion_seconds for job in counted]
    makespan = max(job.finished_s for job in jobs) - min(job.submitted_s for job in jobs)
    paid_seconds = sum(job.paid_gpu_seconds for job in jobs)
    available_seconds = paid_seconds if pool_devices is None else pool_devices * makespan
    ratios = [job.ftf_rho for job in counted]
    unfair_to_themis = share_above([job.ftf_rho_themis for job in counted], UNFAIR_RHO)
    milliseconds = 1e3 * np.asarray(decision_seconds or [0.0])
    return Totals(
        avg_jct_s=float(np.mean(completion)),
        p99_jct_s=float(np.percentile(completion, 99)),
        makespan_s=makespan,
        worst_ftf_rho=worst(ratios),
        unfair_share=share_above(ratios, UNFAIR_RHO),
        sharing_incentive=None if unfair_to_themis is None else 1.0 - unfair_to_themis,
        gpu_utilisation=sum(job.gpu_seconds for job in jobs) / max(available_seconds, 1e-9),
        cost_usd=sum(job.cost_usd for job in jobs),
        gpu_hours=paid_seconds / 3600,
        restarts=sum(job.restarts for job in jobs),
        decisions=len(decision_seconds),
        decision_ms_p50=float(np.percentile(milliseconds, 50)),
        decision_ms_p95=float(np.percentile(milliseconds, 95)),
        stopped=len(jobs) - len(finished),
    )


def _held_seconds(held: HeldInstance) -> float:
    if held.launched_seconds is None or held.ended_seconds is None:
        return 0.0
    return held.ended_seconds - held.launched_seconds
