"""Goodput that a job's fitted model predicts for its present allocation, and its time left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.prediction import size_log_errors


def predicted_goodput(
    report: TrainingReport | None,
    instances: Sequence[HeldInstance],
    models: Mapping[str, ThroughputModel],
    kinds: Mapping[str, str],
) -> float | None:
    """Return the predicted useful examples per second at the present size and batch.

    `kinds` maps offers to kinds of device. None without a report, a measured model or a needed
    noise scale, and while the job trains on several kinds.
    """
    training = {held.offer for held in instances if held.phase is InstancePhase.TRAINING}
    kinds_in_use = {kinds[offer] for offer in training if offer in kinds}
    if report is None or len(kinds_in_use) != 1:
        return None
    model = models.get(kinds_in_use.pop())
    if model is None or not model.measured:
        return None
    batch = report.batch
    seconds = predictor_of(model.point).step_seconds(
        report.replicas, report.devices, batch.device, batch.accumulation
    )
    errors = size_log_errors(model, report.replicas, report.devices)
    throughput = batch.total / float(seconds) * math.exp(-float(errors.mean()))
    noise, initial = report.noise, report.bounds.initial
    if batch.total == initial:
        return throughput
    if noise is None or not is_usable(noise):
        return None
    return throughput * float(efficiency(noise.examples, initial, batch.total))


def remaining_seconds_of(job: JobRecord, predicted: float | None) -> float | None:
    """Return the remaining seconds at the measured goodput, else at the predicted one.

    The result is None if unknown.
    """
    report = job.report
    if job.phase is not JobPhase.RUNNING or report is None or report.total_examples is None:
        return None
    goodput = report.goodput_measured or predicted
    if not goodput:
        return None
    return max(report.total_examples - report.progress_examples, 0.0) / goodput
