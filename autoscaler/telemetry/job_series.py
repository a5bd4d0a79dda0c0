"""Metrics of live jobs, from the records that the leader of a store keeps in memory.

Slow parts are computed once for each change: the cost of a job from its ledger, which then grows
at the price of its instances, and the goodput that its model predicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.predicted_goodput import (
    predicted_goodput,
    remaining_seconds_of,
)
from autoscaler.domain.access import OWNER
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobRecord
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.domain.spending import LedgerEntry
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.efficiency import efficiency
from autoscaler.ledger.ledger import Ledger
from autoscaler.service.instances.gpu_uses import GpuUses
from autoscaler.store.store import Store
from autoscaler.telemetry import catalogue
from autoscaler.telemetry.catalogue import MetricSpec

# A cost is summed anew after this time, for what the price of the instances does not say.
_SUMMED_SECONDS: Final = 600.0
_SECONDS_PER_HOUR: Final = 3600.0

Series = tuple[MetricSpec, float]


@dataclass(slots=True)
class _Cost:
    """Cost and price of a job at a time, and the ledger lines that they follow from."""

    lines: tuple[LedgerEntry, ...]
    usd: float
    usd_per_hour: float
    at_seconds: float

    def usd_at(self, now_seconds: float) -> float:
        """Return the cost at a later time, while the lines stay the same."""
        return self.usd + self.usd_per_hour * (now_seconds - self.at_seconds) / _SECONDS_PER_HOUR


@dataclass(slots=True)
class _Prediction:
    """Predicted goodput of a job, and the values that it follows from."""

    report: TrainingReport | None
    models: Mapping[str, ThroughputModel]
    offers: tuple[str, ...]
    goodput: float | None


class JobSeries:
    """Source of the metrics of jobs. One thread at a time may use it."""

    def __init__(self, store: Store, status: ControllerStatus, gpu_uses: GpuUses) -> None:
        self._store = store
        self._gpu_uses = gpu_uses
        self._status = status
        self._costs: dict[str, _Cost] = {}
        self._predictions: dict[str, _Prediction] = {}

    def keep(self, jobs: Sequence[JobRecord]) -> None:
        """Forget all jobs but these."""
        ids = {job.id for job in jobs}
        self._costs = {job: self._costs[job] for job in self._costs.keys() & ids}
        self._predictions = {job: self._predictions[job] for job in self._predictions.keys() & ids}

    def of(
        self, job: JobRecord, held: Sequence[HeldInstance], now_seconds: float
    ) -> Iterator[Series]:
        """Yield the metrics of one job that holds these instances."""
        cost = self._cost(job.id, now_seconds)
        spent_usd = cost.usd_at(now_seconds)
        training = sum(instance.phase is InstancePhase.TRAINING for instance in held)
        yield catalogue.JOB_INSTANCES, len(held)
        yield catalogue.JOB_TRAINING, training
        yield catalogue.JOB_RATE, cost.usd_per_hour
        yield catalogue.JOB_SPENT, spent_usd
        yield catalogue.JOB_ATTEMPT, job.attempt
        yield catalogue.JOB_STALLED, job.id in self._status.stalls
        yield catalogue.JOB_TROUBLE, job.id in self._status.job_troubles
        objective = job.spec.objective
        if objective.most_usd is not None:
            yield catalogue.JOB_BUDGET, float(objective.most_usd)
        if objective.deadline_seconds is not None:
            yield catalogue.JOB_DEADLINE, objective.deadline_seconds
        yield from self._of_gpus(held)
        predicted = self._predicted(job, held)
        if predicted is not None:
            yield catalogue.JOB_PREDICTED_GOODPUT, predicted
        if job.report is not None:
            yield from _of_report(job.report, trains=bool(held))
            if job.reported_seconds is not None:
                yield catalogue.JOB_REPORTED, job.reported_seconds
        remaining_seconds = remaining_seconds_of(job, predicted) if held else None
        if remaining_seconds is not None:
            yield catalogue.JOB_REMAINING, remaining_seconds
            to_come_usd = cost.usd_per_hour * remaining_seconds / _SECONDS_PER_HOUR
            yield catalogue.JOB_PREDICTED_COST, spent_usd + to_come_usd

    def _of_gpus(self, held: Sequence[HeldInstance]) -> Iterator[Series]:
        """Yield the use of the GPUs of some instances, if an agent has reported it."""
        reported = (self._gpu_uses.of(instance.id) for instance in held)
        uses = [use for use in reported if use is not None]
        gpus = sum(use.gpus for use in uses)
        if not gpus:
            return
        yield catalogue.JOB_GPUS, gpus
        yield catalogue.JOB_GPU_SHARE, sum(use.mean_share * use.gpus for use in uses) / gpus
        yield catalogue.JOB_GPU_MEMORY_USED, sum(use.memory_used_bytes for use in uses)
        yield catalogue.JOB_GPU_MEMORY, sum(use.memory_bytes for use in uses)

    def _cost(self, job: str, now_seconds: float) -> _Cost:
        """Return the cost of a job; its ledger is summed after a change, and at times."""
        lines = self._store.ledger.entries(job)
        known = self._costs.get(job)
        age_seconds = float("inf") if known is None else now_seconds - known.at_seconds
        if known is not None and known.lines == lines and 0.0 <= age_seconds < _SUMMED_SECONDS:
            return known
        ledger = Ledger(lines)
        usd, rate = ledger.spent(job, now_seconds), ledger.rate_usd_per_hour(now_seconds, job)
        self._costs[job] = _Cost(lines, float(usd), float(rate), now_seconds)
        return self._costs[job]

    def _predicted(self, job: JobRecord, held: Sequence[HeldInstance]) -> float | None:
        """Return the goodput that the model predicts, computed after a change only."""
        models = self._store.measurements.models(job.id)
        training = (instance for instance in held if instance.phase is InstancePhase.TRAINING)
        offers = tuple(sorted({instance.offer for instance in training}))
        known = self._predictions.get(job.id)
        if (
            known is not None
            and known.report is job.report
            and known.models is models
            and known.offers == offers
        ):
            return known.goodput
        kinds = {offer.id: offer.device_kind for offer in self._status.offers}
        goodput = predicted_goodput(job.report, held, models, kinds)
        self._predictions[job.id] = _Prediction(job.report, models, offers, goodput)
        return goodput


def labels_of(job: JobRecord) -> dict[str, str]:
    """Return the labels of each metric of a job."""
    return {"job_id": job.id, "person": job.spec.person or OWNER, "team": job.spec.team or ""}


def info_labels_of(job: JobRecord) -> dict[str, str]:
    """Return the labels of a job's info metric."""
    study, program = job.spec.study or "", job.spec.program_name
    return {**labels_of(job), "study": study, "program": program, "phase": job.phase.value}


def _of_report(report: TrainingReport, trains: bool) -> Iterator[Series]:
    """Yield the metrics of a job's last training report; no speed unless it `trains` now."""
    noise, share = report.noise, _efficiency(report)
    yield catalogue.JOB_STEPS, report.step
    yield catalogue.JOB_BATCH, report.batch.total
    yield catalogue.JOB_PROGRESS, report.progress_examples
    if report.total_examples is not None:
        yield catalogue.JOB_TOTAL, report.total_examples
    if noise is not None and is_usable(noise):
        yield catalogue.JOB_NOISE, noise.examples
    if share is not None:
        yield catalogue.JOB_EFFICIENCY, share
    if trains and report.goodput_measured is not None:
        yield catalogue.JOB_GOODPUT, report.goodput_measured
        if share:
            yield catalogue.JOB_THROUGHPUT, report.goodput_measured / share


def _efficiency(report: TrainingReport) -> float | None:
    """Return the useful examples per example; None for a larger batch of unknown noise."""
    initial, total, noise = report.bounds.initial, report.batch.total, report.noise
    if total == initial:
        return 1.0
    if noise is None or not is_usable(noise):
        return None
    return float(efficiency(noise.examples, initial, total))
