"""A run as numbers: what each job took and cost, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal

import numpy as np

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.offer import Offer
from autoscaler.ledger.ledger import Ledger
from autoscaler.simulator.simulation import Ran, Run
from autoscaler.simulator.training import Span
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A stretch of one job's training; `batch_size` 0 while it was held up."""

    from_s: float
    to_s: float
    offer: str
    instances: int
    gpus: int
    batch_size: int
    accumulation: int


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job. `gpu_seconds` were at work, `paid_gpu_seconds` on instances that were paid for."""

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
    timeline: tuple[TimelineEntry, ...]

    @property
    def completion_seconds(self) -> float:
        """From submission to end (JCT)."""
        return self.finished_s - self.submitted_s


@dataclass(frozen=True, slots=True)
class Totals:
    """All jobs together. `gpu_utilisation` is the share of paid devices' time at work."""

    avg_jct_s: float
    p99_jct_s: float
    makespan_s: float
    gpu_utilisation: float
    cost_usd: float
    gpu_hours: float
    restarts: int
    decisions: int
    decision_ms_p50: float
    decision_ms_p95: float


@dataclass(frozen=True, slots=True)
class Result:
    """What `castor simulate --json` writes."""

    policy: str
    seed: int
    jobs: tuple[JobResult, ...]
    totals: Totals


def result_of(
    policy: str, seed: int, run: Run, store: Store, offers: Mapping[str, Offer]
) -> Result:
    """The result of a run, its costs from the ledger in `store`."""
    costs = Ledger(store.ledger.entries()).by_job(run.ended_seconds)
    jobs = tuple(
        _job(
            ran,
            costs.get(ran.job, Decimal(0)),
            store.instances.of_job(ran.job, include_ended=True),
            offers,
        )
        for ran in run.jobs
    )
    return Result(policy, seed, jobs, _totals(jobs, run.decision_seconds))


def as_document(result: Result) -> dict[str, object]:
    """The result as JSON has it."""
    return asdict(result)


def _job(
    ran: Ran, cost_usd: Decimal, held: Sequence[HeldInstance], offers: Mapping[str, Offer]
) -> JobResult:
    arrival = ran.arrival
    return JobResult(
        name=arrival.name,
        application=arrival.application,
        submitted_s=arrival.submitted_seconds,
        started_s=ran.started_seconds,
        finished_s=ran.finished_seconds,
        cost_usd=float(cost_usd),
        gpu_seconds=sum(_seconds(span) * span.devices for span in ran.spans),
        paid_gpu_seconds=sum(_paid_seconds(each) * offers[each.offer].devices for each in held),
        gpus_requested=arrival.devices_requested,
        restarts=max(ran.starts - 1, 0),
        pause_s=sum(_seconds(span) for span in ran.spans if span.batch is None),
        timeline=tuple(_entry(span) for span in ran.spans),
    )


def _totals(jobs: Sequence[JobResult], decision_seconds: Sequence[float]) -> Totals:
    completion = [job.completion_seconds for job in jobs]
    paid_seconds = sum(job.paid_gpu_seconds for job in jobs)
    milliseconds = 1e3 * np.asarray(decision_seconds or [0.0])
    return Totals(
        avg_jct_s=float(np.mean(completion)),
        p99_jct_s=float(np.percentile(completion, 99)),
        makespan_s=max(job.finished_s for job in jobs) - min(job.submitted_s for job in jobs),
        gpu_utilisation=sum(job.gpu_seconds for job in jobs) / max(paid_seconds, 1e-9),
        cost_usd=sum(job.cost_usd for job in jobs),
        gpu_hours=paid_seconds / 3600,
        restarts=sum(job.restarts for job in jobs),
        decisions=len(decision_seconds),
        decision_ms_p50=float(np.percentile(milliseconds, 50)),
        decision_ms_p95=float(np.percentile(milliseconds, 95)),
    )


def _entry(span: Span) -> TimelineEntry:
    batch = span.batch
    return TimelineEntry(
        from_s=span.from_seconds,
        to_s=span.to_seconds,
        offer=span.offer,
        instances=span.instances,
        gpus=span.devices,
        batch_size=batch.total if batch else 0,
        accumulation=batch.accumulation if batch else 0,
    )


def _seconds(span: Span) -> float:
    return span.to_seconds - span.from_seconds


def _paid_seconds(held: HeldInstance) -> float:
    if held.launched_seconds is None or held.ended_seconds is None:
        return 0.0
    return held.ended_seconds - held.launched_seconds
