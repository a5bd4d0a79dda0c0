"""Optimus: devices go where they shorten the remaining time most. Fixed pool, fixed batches.

Source: Peng et al., Optimus (EuroSys'18), section 4.1, the greedy allocation by marginal gain;
with all-reduce in place of parameter servers, order and placement as in its port in the simulator
of Pollux (OSDI'21).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import GroundTruth, JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import duration
from autoscaler.goodput.batch_search import goodput_table
from autoscaler.goodput.formulas import predictor_of
from autoscaler.policies.pools.pool import Grant, Turns, by_submission, plan_of, pool_of
from autoscaler.policies.published.greedy import most_gain_first


@dataclass(frozen=True, slots=True)
class OptimusParameters:
    """Parameters of Optimus.

    Attributes:
        most_devices: most devices of one job; the published profiles go up to 64.
    """

    most_devices: int = 64


_DEFAULTS = OptimusParameters()


class OptimusPolicy:
    """One device for each job in the order of submission, then the next to the highest gain.

    The gain of the k-th device is ``remaining steps x (T(k - 1) - T(k))`` seconds. T is the step
    time on as few machines as possible at the owner's batch; statistical efficiency is ignored. T
    comes from the job's own fitted model. A job without a model gets one device. Where there are
    several kinds of device a job keeps its kind, or gets the one with the most devices left.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = False

    def __init__(self, parameters: OptimusParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        turns = Turns(pool, jobs)
        kinds = {job.id: turns.take(job, 1) for job in jobs}
        grants = {job.id: Grant(0, _reason((), 0)) for job in jobs}
        for kind, part in pool.by_kind().items():
            machines = part.fewest_machines()[: self._parameters.most_devices]
            jobs_of_kind = [job for job in jobs if kinds[job.id] == kind]
            remaining = {
                job.id: self._remaining_seconds(job, kind, machines[: part.most_of(job)])
                for job in jobs_of_kind
            }
            negative_remaining = {
                job: [-seconds for seconds in job_seconds]
                for job, job_seconds in remaining.items()
            }
            for job, size in most_gain_first(negative_remaining, part.available).items():
                grants[job] = Grant(size, _reason(remaining[job], size), kind)
        smallest_first = sorted(jobs, key=lambda job: grants[job.id].devices)
        return plan_of(snapshot, pool, smallest_first, grants)

    def _remaining_seconds(
        self, job: JobSnapshot, kind: str, machines: Sequence[int]
    ) -> Sequence[float]:
        """Return the seconds left on 1, 2, ... devices, as far as known.

        `machines` holds the number of machines that each number of devices lies on.
        """
        if self.oracle:
            return () if job.truth is None else _true_seconds(job.truth, kind, len(machines))
        return _predicted_seconds(job, kind, machines)


class OptimusOraclePolicy(OptimusPolicy):
    """Optimus with the true step times and the true number of steps left.

    Pollux (OSDI'21), section 5, calls it "Optimus+Oracle".
    """

    oracle = True


def _true_seconds(truth: GroundTruth, kind: str, most: int) -> list[float]:
    """Return the true seconds left on 1, 2, ... devices, up to the first unknown step time."""
    step_seconds, seconds_left = truth.step_seconds_on(kind), []
    for devices in range(1, most + 1):
        if devices not in step_seconds:
            break
        seconds_left.append(truth.remaining_steps * step_seconds[devices])
    return seconds_left


def _predicted_seconds(job: JobSnapshot, kind: str, machines: Sequence[int]) -> list[float]:
    """Return the predicted seconds left on 1, 2, ... devices at the initial batch.

    At the initial batch the statistical efficiency is 1: every example counts in full.
    """
    model = job.models.get(kind)
    if model is None or job.remaining_examples is None:
        return []
    rigid = replace(job.batch.on(kind), adaptive=False)
    devices = np.arange(1, min(len(machines), rigid.initial) + 1)
    point = predictor_of((model.point,))
    (rate,) = goodput_table(point, 0.0, rigid, machines[: len(devices)], devices)
    with np.errstate(divide="ignore"):  # infinite where no whole replica fits
        seconds: list[float] = (job.remaining_examples / rate).tolist()
    return seconds


def _reason(remaining: Sequence[float], size: int) -> str:
    if size == 0:
        return "earlier jobs hold every device"
    if size > len(remaining):
        return "its time on more devices is unknown"
    time_left = f"{duration(remaining[size - 1])} left"
    if size == len(remaining):
        return f"{time_left}, the most devices it may have"
    saved_seconds = max(remaining[size - 1] - remaining[size], 0.0)
    return f"{time_left}, one more device would save {duration(saved_seconds)}"
