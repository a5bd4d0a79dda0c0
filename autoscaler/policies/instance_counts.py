"""Instances of one offer for each job: the fewest at first, then more, in the order of gain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, ThroughputModel
from autoscaler.economics.explanation.reasons import action_of
from autoscaler.economics.supply.supply import Supply
from autoscaler.policies.transition import releases_first


@dataclass(frozen=True, slots=True, eq=False)
class InstanceRange:
    """Instance counts that one job may hold of one offer, from `fewest` to `most`.

    All usable devices of each instance are used. `model` is the job's model of that kind of
    device. Counts are multiples of `gang`.
    """

    job: JobSnapshot
    offer: Offer
    model: ThroughputModel
    fewest: int
    most: int
    gang: int = 1

    @property
    def devices_used(self) -> int:
        """Devices used of each instance, at most one per example of the largest batch.

        All of them where several devices hold a copy of the model.
        """
        if self.job.parallelism.shard > 1:
            return self.offer.devices
        return min(self.offer.devices, largest_batch(self.job))

    def allocation(self, instances: int) -> Allocation:
        """Return the allocation of so many instances."""
        return Allocation(self.offer.id, instances, self.devices_used)


@dataclass(frozen=True, slots=True)
class Growth:
    """Next instance count of a job, and the gain of each additional instance."""

    instances: int
    gain: float


@dataclass(frozen=True, slots=True, eq=False)
class Ascent:
    """Sequence of purchases within the limits, each larger than the one before.

    Attributes:
        chosen: range of each job that gets anything, by id; it starts with its fewest instances.
        steps: jobs that grow, in order, each with its new instance count.
    """

    chosen: Mapping[str, InstanceRange]
    steps: tuple[tuple[str, int], ...]

    def counts(self, steps: int) -> dict[str, int]:
        """Return the instances of each job after the first `steps` steps."""
        fewest = {job: option.fewest for job, option in self.chosen.items()}
        return fewest | dict(self.steps[:steps])

    def allocations(self, steps: int) -> dict[str, Allocation]:
        """Return the allocation of each job after the first `steps` steps."""
        return {
            job: self.chosen[job].allocation(instances)
            for job, instances in self.counts(steps).items()
        }


def largest_batch(job: JobSnapshot) -> int:
    """Return the most examples of a step of the job."""
    return job.batch.maximum if job.batch.adaptive else job.batch.initial


def ranges(job: JobSnapshot, supply: Supply, growth: int) -> tuple[InstanceRange, ...]:
    """Return the job's range of each offer: the held offer first, then by price per device.

    A job grows to `growth` times the devices that it was measured on, and to at least one
    instance.
    """
    options = []
    for index in supply.permitted(job.instances):
        offer = supply.offers[index]
        model = job.models.get(offer.device_kind)
        gang, fewest = job.gang_instances(offer), job.least_instances(offer)
        if model is None or gang is None or fewest is None:
            continue
        held = job.held.instances if job.held and job.held.offer == offer.id else 0
        measured = max((devices for _, devices in model.measured), default=0)
        most = min(max(growth * measured // offer.devices, fewest), job.most_instances(offer))
        if offer.id in supply.unavailable:
            most = min(most, held)
        if most >= fewest:
            options.append(InstanceRange(job, offer, model, fewest, most - most % gang, gang))
    return tuple(sorted(options, key=_preference))


def ascent(
    jobs: Sequence[JobSnapshot],
    options: Mapping[str, Sequence[InstanceRange]],
    supply: Supply,
    growth: Callable[[InstanceRange, int], Growth | None],
) -> Ascent:
    """Return purchases that grow by the highest gain first, ties in the order of the jobs.

    Args:
        jobs: jobs in the order of service.
        options: ranges of each job by id, preferred ones first; the first whose fewest instances
            fit the limits is chosen.
        supply: offers and limits.
        growth: function of a range and an instance count to the next growth. A job stops growing
            at None or when its growth exceeds the limits.
    """
    used = np.zeros(len(supply.limits))
    chosen: dict[str, InstanceRange] = {}
    for job in sorted(jobs, key=lambda job: job.held is None):
        for option in options[job.id]:
            more = used + supply.uses([option.allocation(option.fewest)])
            if supply.bears(more):
                chosen[job.id], used = option, more
                break
    order = {job.id: turn for turn, job in enumerate(jobs)}
    heap: list[tuple[float, int, str, int, int]] = []

    def queue(option: InstanceRange, count: int) -> None:
        """Push the next growth of the range, if there is one."""
        further = growth(option, count)
        if further is not None:
            name = option.job.id
            heappush(heap, (-further.gain, order[name], name, count, further.instances))

    for option in chosen.values():
        queue(option, option.fewest)
    steps = []
    while heap:
        _, _, name, before, count = heappop(heap)
        option = chosen[name]
        more = used + supply.uses([option.allocation(count - before)])
        if supply.bears(more):
            used = more
            steps.append((name, count))
            queue(option, count)
    return Ascent(chosen, tuple(steps))


def plan_of_allocations(
    snapshot: Snapshot,
    supply: Supply,
    targets: Mapping[str, Allocation | None],
    reasons: Mapping[str, str],
) -> Plan:
    """Return the plan that gives every job its target by id; each reason is a clause."""
    jobs = sorted(snapshot.jobs, key=lambda job: job.id)
    release_first = releases_first([(job.held, targets[job.id]) for job in jobs], supply)
    return Plan(
        decisions=tuple(
            _decision(job, targets[job.id], reasons[job.id], is_first)
            for job, is_first in zip(jobs, release_first, strict=True)
        ),
        shadow_prices={limit.name: 0.0 for limit in supply.limits},
    )


def _preference(option: InstanceRange) -> tuple[bool, float, float, str]:
    """Return the sort key of a range: held first, then by price per device."""
    is_held = option.job.held is not None and option.job.held.offer == option.offer.id
    price = option.offer.usd_per_second
    return not is_held, price / option.offer.devices, price, option.offer.id


def _decision(
    job: JobSnapshot, target: Allocation | None, clause: str, release_first: bool
) -> Decision:
    """Return the decision that gives the job its target."""
    action = action_of(job.held, target, stops=False)
    outcome = f"{job.id}: {'no offer within the limits' if target is None else target}"
    return Decision(
        job=job.id,
        action=action,
        current=job.held,
        target=target,
        reason=f"{action.value} {outcome}, {clause}",
        release_first=release_first,
    )
