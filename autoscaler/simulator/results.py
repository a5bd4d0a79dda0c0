"""A run as numbers: what each job took and cost, and all of them together."""

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
from autoscaler.simulator.simulation import Ran, Run
from autoscaler.simulator.study_results import StudyResult, study_result
from autoscaler.simulator.timeline import Stay, TimelineEntry, stays_of, timeline_of
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job. `gpu_seconds` were at work, `paid_gpu_seconds` on instances that were paid for.

    `exclusive_s` is what it takes alone on what was requested (`exclusive_seconds`), and None
    where that was not profiled. `ftf_rho` is its completion time over that, by the number of jobs
    in the workload, `ftf_rho_themis` by that while it was there (`fairness_ratio`). `stopped`
    says why, where its objective ended it at `finished_s` with work left; `deadline_s` is when
    it was to have finished.
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
        """From submission to end (JCT)."""
        return self.finished_s - self.submitted_s


@dataclass(frozen=True, slots=True)
class Totals:
    """All jobs together.

    `gpu_utilisation` is the share of paid devices' time at work, on a pool that of all devices
    until the last job ended. `unfair_share` is the share of jobs with `ftf_rho` above
    `UNFAIR_RHO`; `sharing_incentive` is that of the jobs which were no worse off than with an
    equal share of their own, those with `ftf_rho_themis` up to the same bound. All that is about
    fairness is None where nothing is known. Completion and fairness are of the jobs that
    finished, unless all were `stopped`. `failed_plans` and `solver_failures` are as in
    `ControllerStatus`.
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
    """One decision that was told: a change, or a stay for a new reason."""

    at_s: float
    job: str
    action: str
    ground: str
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """What `castor simulate --json` writes; `study` is that which was simulated, if one was."""

    policy: str
    seed: int
    jobs: tuple[JobResult, ...]
    totals: Totals
    decisions: tuple[DecisionEntry, ...] = ()
    study: StudyResult | None = None


def result_of(
    policy: str, seed: int, run: Run, store: Store, offers: Mapping[str, Offer]
) -> Result:
    """The result of a run, its costs from the ledger in `store`."""
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
    """The result as JSON has it."""
    document = asdict(result)
    if result.study is None:
        del document["study"]
    return document


def _decisions(run: Run, store: Store) -> tuple[DecisionEntry, ...]:
    names = {ran.job: ran.arrival.name for ran in run.jobs}
    told = store.journal.decisions(limit=sys.maxsize)
    return tuple(
        DecisionEntry(
            at_s=each.at_seconds,
            job=names[each.decision.job],
            action=each.decision.action.value,
            ground=each.decision.ground,
            reason=each.decision.reason,
        )
        for each in reversed(told)
    )


@dataclass(frozen=True, slots=True)
class _Record:
    """What the store knows of one job: what it was billed for, and its deadline."""

    usd: Decimal
    device_seconds: float
    timeline: tuple[TimelineEntry, ...]
    deadline_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Crowd:
    """The jobs of a workload and the devices that they share; None where those are bought."""

    jobs: int
    devices: int | None


def _pool_devices(offers: Mapping[str, Offer]) -> int | None:
    if not all(offer.shared for offer in offers.values()):
        return None
    return sum(offer.devices for offer in offers.values())


def _record(
    usd: Decimal, ran: Ran, stays: Sequence[Stay], store: Store, offers: Mapping[str, Offer]
) -> _Record:
    every = store.instances.of_job(ran.job, include_ended=True)
    shared = [held for held in every if offers[held.offer].shared]
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
    there_seconds = paid_seconds if pool_devices is None else pool_devices * makespan
    ratios = [job.ftf_rho for job in counted]
    above = share_above([job.ftf_rho_themis for job in counted], UNFAIR_RHO)
    milliseconds = 1e3 * np.asarray(decision_seconds or [0.0])
    return Totals(
        avg_jct_s=float(np.mean(completion)),
        p99_jct_s=float(np.percentile(completion, 99)),
        makespan_s=makespan,
        worst_ftf_rho=worst(ratios),
        unfair_share=share_above(ratios, UNFAIR_RHO),
        sharing_incentive=None if above is None else 1.0 - above,
        gpu_utilisation=sum(job.gpu_seconds for job in jobs) / max(there_seconds, 1e-9),
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
