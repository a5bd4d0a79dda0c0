"""Optimus: devices go where they shorten the remaining time most. A fixed pool, fixed batches.

Source: Peng et al., Optimus (EuroSys'18), section 4.1, the greedy allocation by marginal gain;
with all-reduce in place of parameter servers, order and placement as in its port in the simulator
of Pollux (OSDI'21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace

import numpy as np

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, Truth
from autoscaler.economics.wording import duration
from autoscaler.goodput.batch import goodput_table
from autoscaler.goodput.throughput import as_array
from autoscaler.policies.pool import Grant, Pool, by_submission, plan_of, pool_of


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
    which nothing is known one device is all it gets.
    """

    adapts_batch = False
    oracle = False

    def __init__(self, parameters: OptimusParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        machines = pool.fewest_machines()[: self._parameters.most_devices]
        remaining = {job.id: self._remaining_seconds(job, pool, machines) for job in jobs}
        sizes = _greedy(remaining, pool.available)
        grants = {job: Grant(size, _why(remaining[job], size)) for job, size in sizes.items()}
        smallest_first = sorted(jobs, key=lambda job: sizes[job.id])
        return plan_of(snapshot, pool, smallest_first, grants)

    def _remaining_seconds(
        self, job: JobSnapshot, pool: Pool, machines: Sequence[int]
    ) -> Sequence[float]:
        """On 1, 2, ... devices, which lie on `machines` of them; as far as it is known."""
        if self.oracle:
            return () if job.truth is None else _true(job.truth, len(machines))
        return _predicted(job, pool, machines)


class OptimusOraclePolicy(OptimusPolicy):
    """Optimus that is told the true step times and how many steps are left.

    So it is run, as "Optimus+Oracle", in Pollux (OSDI'21), section 5.
    """

    oracle = True


def _true(truth: Truth, most: int) -> list[float]:
    found = []
    for devices in range(1, most + 1):
        if devices not in truth.step_seconds:
            break
        found.append(truth.remaining_steps * truth.step_seconds[devices])
    return found


def _predicted(job: JobSnapshot, pool: Pool, machines: Sequence[int]) -> list[float]:
    """By the point estimate; at the initial batch every example is a useful one."""
    model = None if pool.device_kind is None else job.models.get(pool.device_kind)
    if model is None or job.remaining_examples is None:
        return []
    rigid = replace(job.batch, adaptive=False)
    devices = np.arange(1, min(len(machines), rigid.initial) + 1)
    theta = np.atleast_2d(as_array(model.point))
    (rate,) = goodput_table(theta, 0.0, rigid, machines[: len(devices)], devices)
    seconds: list[float] = (job.remaining_examples / rate).tolist()
    return seconds


def _greedy(remaining: Mapping[str, Sequence[float]], free: int) -> dict[str, int]:
    """Devices of each job, whose remaining seconds on 1, 2, ... are given in the jobs' order."""
    sizes = {job: int(turn < free) for turn, job in enumerate(remaining)}
    free -= sum(sizes.values())
    heap = [
        (-_gain(remaining[job], size), turn, job)
        for turn, (job, size) in enumerate(sizes.items())
        if size > 0
    ]
    heapify(heap)
    while free > 0 and heap:
        gain, turn, job = heap[0]
        if gain >= 0:
            break
        sizes[job] += 1
        free -= 1
        heapreplace(heap, (-_gain(remaining[job], sizes[job]), turn, job))
    return sizes


def _gain(remaining: Sequence[float], size: int) -> float:
    """Seconds that one device more would save; 0 where that is not known."""
    return remaining[size - 1] - remaining[size] if size < len(remaining) else 0.0


def _why(remaining: Sequence[float], size: int) -> str:
    if size == 0:
        return "earlier jobs have every device"
    if size > len(remaining):
        return "how long it would take on more is not known"
    left = f"{duration(remaining[size - 1])} left"
    if size == len(remaining):
        return f"{left}, the most devices it may have"
    return f"{left}, one more device would save {duration(max(_gain(remaining, size), 0.0))}"
