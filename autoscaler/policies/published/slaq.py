"""SLAQ: devices go where they improve the model most before the next plan. A fixed pool.

Source: Zhang et al., "SLAQ: Quality-Driven Scheduling for Distributed Machine Learning" (SoCC'17),
section 3: loss curves fitted online, normalised by the largest change, and the greedy allocation
by marginal quality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import number
from autoscaler.goodput.batch_search import goodput_table
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.pools.pool import Grant, Turns, by_submission, plan_of, pool_of
from autoscaler.policies.published.greedy import most_gain_first
from autoscaler.policies.published.quality import QualityCurve, fitted


@dataclass(frozen=True, slots=True)
class SlaqParameters:
    """Weights of the curve fit, and the most devices.

    Attributes:
        history_decay: weight of a report over that of the next.
        most_devices: most devices of one job; the published profiles go up to 64.

    Raises:
        ValueError: the decay is not in (0, 1], or most_devices is below 1.
    """

    history_decay: float = 0.9
    most_devices: int = 64

    def __post_init__(self) -> None:
        if not 0 < self.history_decay <= 1:
            raise ValueError(f"history_decay={self.history_decay}: must be in (0, 1]")
        if self.most_devices < 1:
            raise ValueError(f"most_devices={self.most_devices}: must be at least 1")


_DEFAULTS = SlaqParameters()


class SlaqPolicy:
    """One device for each job in the order of submission, then the next to the best improvement.

    The improvement is the change of the job's metric until the next plan, over the largest change
    between two of its reports. For a job with too few reports it is the examples until then over
    those done, so that the least progress goes first. Jobs keep the batch that their owners chose.
    The fitted model gives a job's speed; a job without a model gets one device.
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: SlaqParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        turns = Turns(pool, jobs)
        kinds = {job.id: turns.take(job, 1) for job in jobs}
        grants = {job.id: Grant(0, "earlier jobs hold every device") for job in jobs}
        curves = {job.id: fitted(job.quality, self._parameters.history_decay) for job in jobs}
        for kind, part in pool.by_kind().items():
            machines = part.fewest_machines()[: self._parameters.most_devices]
            values = {
                job.id: _improvements(
                    job,
                    curves[job.id],
                    _rates(job, kind, machines[: part.most_of(job)]) * snapshot.replan_seconds,
                )
                for job in jobs
                if kinds[job.id] == kind
            }
            for job_id, size in most_gain_first(values, part.available).items():
                if size > 0:
                    grants[job_id] = Grant(size, _reason(values[job_id], size), kind)
        smallest_first = sorted(jobs, key=lambda job: grants[job.id].devices)
        return plan_of(snapshot, pool, smallest_first, grants)


def _rates(job: JobSnapshot, kind: str, machines: Sequence[int]) -> FloatArray:
    """Return examples per second on 1, 2, ... devices; empty without a model.

    `machines` holds the number of machines that each number of devices lies on.
    """
    model = job.models.get(kind)
    if model is None:
        return np.zeros(0)
    rigid = replace(job.batch.on(kind), adaptive=False)
    devices = np.arange(1, min(len(machines), rigid.initial) + 1)
    point = predictor_of((model.point,))
    rate: FloatArray = goodput_table(point, 0.0, rigid, machines[: len(devices)], devices)[0]
    return rate


def _improvements(
    job: JobSnapshot, curve: QualityCurve | None, examples: FloatArray
) -> list[float]:
    """Return the relative improvement by each number of further examples."""
    progress = job.progress_examples
    if curve is None:
        improvements: list[float] = (examples / (progress + job.batch.initial)).tolist()
        return improvements
    return [curve.improvement(progress, more_examples) for more_examples in examples.tolist()]


def _reason(improvements: Sequence[float], size: int) -> str:
    if size > len(improvements):
        return "its speed on more devices is unknown"
    return f"improves by {number(improvements[size - 1])} of its largest step before the next plan"
