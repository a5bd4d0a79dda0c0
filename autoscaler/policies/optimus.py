"""Optimus: devices go where they shorten the remaining time most. A fixed pool, fixed batches.

Source: Peng et al., Optimus (EuroSys'18), section 4.1, the greedy allocation by marginal gain;
with all-reduce in place of parameter servers, order and placement as in its port in the simulator
of Pollux (OSDI'21).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, Truth
from autoscaler.economics.wording import duration
from autoscaler.goodput.batch import goodput_table
from autoscaler.goodput.formulas import predictor_of
from autoscaler.policies.greedy import most_gain_first
from autoscaler.policies.pool import Grant, Turns, by_submission, plan_of, pool_of


@dataclass(frozen=True, slots=True)
class OptimusParameters:
    """`most_devices` of any one job: as far as step times are known in the published profiles."""

    most_devices: int = 64


_DEFAULTS = OptimusParameters()


class OptimusPolicy:
    """One device each in the order of submission, then the next to whoever gains the most.

    The gain of the k-th device is ``remaining steps x (T(k - 1) - T(k))`` seconds, T the time of
    a step on as few machines as can be, at the batch that the owner chose: what a batch does to
    the statistical efficiency is not looked at. T is the job's own fitted model's; of a job of
    which nothing is known one device is all it gets. Where there are several kinds of device a
    job keeps the one it has, or gets the one of which most are left.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = False

    def __init__(self, parameters: OptimusParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        turns = Turns(pool, jobs)
        kinds = {job.id: turns.take(job, 1) for job in jobs}
        grants = {job.id: Grant(0, _why((), 0)) for job in jobs}
        for kind, part in pool.by_kind().items():
            machines = part.fewest_machines()[: self._parameters.most_devices]
            own = [job for job in jobs if kinds[job.id] == kind]
            remaining = {
                job.id: self._remaining_seconds(job, kind, machines[: part.most_of(job)])
                for job in own
            }
            saved = {job: [-seconds for seconds in left] for job, left in remaining.items()}
            for job, size in most_gain_first(saved, part.available).items():
                grants[job] = Grant(size, _why(remaining[job], size), kind)
        smallest_first = sorted(jobs, key=lambda job: grants[job.id].devices)
        return plan_of(snapshot, pool, smallest_first, grants)

    def _remaining_seconds(
        self, job: JobSnapshot, kind: str, machines: Sequence[int]
    ) -> Sequence[float]:
        """On 1, 2, ... devices, which lie on `machines` of them; as far as it is known."""
        if self.oracle:
            return () if job.truth is None else _true(job.truth, kind, len(machines))
        return _predicted(job, kind, machines)


class OptimusOraclePolicy(OptimusPolicy):
    """Optimus that is told the true step times and how many steps are left.

    So it is run, as "Optimus+Oracle", in Pollux (OSDI'21), section 5.
    """

    oracle = True


def _true(truth: Truth, kind: str, most: int) -> list[float]:
    step_seconds, found = truth.step_seconds_on(kind), []
    for devices in range(1, most + 1):
        if devices not in step_seconds:
            break
        found.append(truth.remaining_steps * step_seconds[devices])
    return found


def _predicted(job: JobSnapshot, kind: str, machines: Sequence[int]) -> list[float]:
    """By the point estimate; at the initial batch every example is a useful one."""
    model = job.models.get(kind)
    if model is None or job.remaining_examples is None:
        return []
    rigid = replace(job.batch.on(kind), adaptive=False)
    devices = np.arange(1, min(len(machines), rigid.initial) + 1)
    point = predictor_of((model.point,))
    (rate,) = goodput_table(point, 0.0, rigid, machines[: len(devices)], devices)
    with np.errstate(divide="ignore"):  # never done where no whole replica fits
        seconds: list[float] = (job.remaining_examples / rate).tolist()
    return seconds


def _why(remaining: Sequence[float], size: int) -> str:
    if size == 0:
        return "earlier jobs have every device"
    if size > len(remaining):
        return "how long it would take on more is not known"
    left = f"{duration(remaining[size - 1])} left"
    if size == len(remaining):
        return f"{left}, the most devices it may have"
    saved_seconds = max(remaining[size - 1] - remaining[size], 0.0)
    return f"{left}, one more device would save {duration(saved_seconds)}"
