"""Jobs that each hold instances of one offer: the fewest at first, then more, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, ThroughputModel
from autoscaler.economics.reasons import action_of
from autoscaler.economics.supply import Supply
from autoscaler.policies.transition import releases_first


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """What one job could hold of one offer: from `fewest` instances to `most`, all devices used.

    `model` is the job's on that kind of device.
    """

    job: JobSnapshot
    offer: Offer
    model: ThroughputModel
    fewest: int
    most: int

    @property
    def devices_used(self) -> int:
        """Of each instance: no more than there are examples for."""
        return min(self.offer.devices, largest_batch(self.job))

    def allocation(self, instances: int) -> Allocation:
        """So many instances."""
        return Allocation(self.offer.id, instances, self.devices_used)


@dataclass(frozen=True, slots=True)
class Growth:
    """To how many instances a job would grow next, and what each of the new ones gains."""

    instances: int
    gain: float


@dataclass(frozen=True, slots=True, eq=False)
class Ascent:
    """Larger and larger purchases within the limits.

    `chosen` (job id -> range) has each job that is given anything, at first its fewest; `steps`
    are the jobs that get more, one after the other, with how many instances each then has.
    """

    chosen: Mapping[str, Range]
    steps: tuple[tuple[str, int], ...]

    def counts(self, steps: int) -> dict[str, int]:
        """Instances of each job after so many steps."""
        found = {job: own.fewest for job, own in self.chosen.items()}
        return found | dict(self.steps[:steps])

    def allocations(self, steps: int) -> dict[str, Allocation]:
        """What each job holds after so many steps."""
        return {job: self.chosen[job].allocation(n) for job, n in self.counts(steps).items()}


def largest_batch(job: JobSnapshot) -> int:
    """The most examples that a step of the job may have."""
    return job.batch.maximum if job.batch.adaptive else job.batch.initial


def ranges(job: JobSnapshot, supply: Supply, growth: int) -> tuple[Range, ...]:
    """What the job could hold of each offer: the one it holds first, then the cheapest a device.

    It grows to `growth` times the devices that it was measured on, at first to an instance.
    """
    found = []
    for index in supply.permitted(job.instances):
        offer = supply.offers[index]
        model = job.models.get(offer.device_kind)
        if model is None:
            continue
        held = job.held.instances if job.held and job.held.offer == offer.id else 0
        measured = max((devices for _, devices in model.measured), default=0)
        fewest = max(job.instances.minimum, 1)
        most = min(max(growth * measured // offer.devices, fewest), job.instances.most_of(offer))
        if offer.id in supply.unavailable:
            most = min(most, held)
        if most >= fewest:
            found.append(Range(job, offer, model, fewest, most))
    return tuple(sorted(found, key=_preference))


def ascent(
    jobs: Sequence[JobSnapshot],
    options: Mapping[str, Sequence[Range]],
    supply: Supply,
    growth: Callable[[Range, int], Growth | None],
) -> Ascent:
    """Purchases that grow where an instance more gains most, ties in the order of the jobs.

    Args:
        jobs: in the order in which they are served.
        options: of each job, the preferred first; it has the first whose fewest the limits bear.
        supply: what bounds them.
        growth: from so many instances of a range; a job that has none, or whose limits do not
            bear it, grows no further.
    """
    used = np.zeros(len(supply.limits))
    chosen: dict[str, Range] = {}
    for job in sorted(jobs, key=lambda job: job.held is None):
        for own in options[job.id]:
            more = used + supply.uses([own.allocation(own.fewest)])
            if supply.bears(more):
                chosen[job.id], used = own, more
                break
    turns = {job.id: turn for turn, job in enumerate(jobs)}
    heap: list[tuple[float, int, str, int, int]] = []

    def queue(own: Range, count: int) -> None:
        further = growth(own, count)
        if further is not None:
            name = own.job.id
            heappush(heap, (-further.gain, turns[name], name, count, further.instances))

    for own in chosen.values():
        queue(own, own.fewest)
    steps = []
    while heap:
        _, _, name, before, count = heappop(heap)
        own = chosen[name]
        more = used + supply.uses([own.allocation(count - before)])
        if supply.bears(more):
            used = more
            steps.append((name, count))
            queue(own, count)
    return Ascent(chosen, tuple(steps))


def plan_of_allocations(
    snapshot: Snapshot,
    supply: Supply,
    targets: Mapping[str, Allocation | None],
    reasons: Mapping[str, str],
) -> Plan:
    """The plan that gives every job its target; each reason is a clause."""
    jobs = sorted(snapshot.jobs, key=lambda job: job.id)
    first = releases_first([(job.held, targets[job.id]) for job in jobs], supply)
    return Plan(
        decisions=tuple(
            _decision(job, targets[job.id], reasons[job.id], is_first)
            for job, is_first in zip(jobs, first, strict=True)
        ),
        shadow_prices={limit.name: 0.0 for limit in supply.limits},
    )


def _preference(own: Range) -> tuple[bool, float, float, str]:
    is_held = own.job.held is not None and own.job.held.offer == own.offer.id
    price = own.offer.usd_per_second
    return not is_held, price / own.offer.devices, price, own.offer.id


def _decision(
    job: JobSnapshot, target: Allocation | None, why: str, release_first: bool
) -> Decision:
    action = action_of(job.held, target, stops=False)
    what = f"{job.id}: {'no room or no offer' if target is None else target}"
    return Decision(
        job=job.id,
        action=action,
        current=job.held,
        target=target,
        reason=f"{action.value} {what}, {why}",
        release_first=release_first,
    )
