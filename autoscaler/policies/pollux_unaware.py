"""Pollux as Sia (SOSP'23) runs it beside itself: on a pool whose kinds of device it mixes up.

Source: the simulator published with Sia, its policy `pollux_unaware` and what repairs its plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from zlib import crc32

from autoscaler.domain.allocation import Placement
from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, ThroughputModel
from autoscaler.policies.optimism import goodputs
from autoscaler.policies.packing import Packing
from autoscaler.policies.pollux import PolluxPolicy
from autoscaler.policies.pool import Pool, plan_of_placements, pool_of
from autoscaler.policies.projection import most_measured

_ANY = "any"


class PolluxUnawarePolicy(PolluxPolicy):
    """Every machine is taken for several of the smallest one's size, of one and the same kind.

    What a job is given of other kinds than the one it has most of, the faster of two, lies idle:
    it can't train on both. The parts of machines come in an order without meaning, as the genetic
    search of the published simulator takes them.
    """

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        if len(pool.by_kind()) < 2 or pool.available == 0:
            return super().plan(snapshot)
        parts = _Parts(snapshot, pool)
        plan = super().plan(parts.alike())
        jobs = {job.id: job for job in snapshot.jobs}
        placements = {
            decision.job: parts.repaired(jobs[decision.job], decision.placement)
            for decision in plan.decisions
        }
        reasons = {decision.job: decision.reason for decision in plan.decisions}
        return replace(plan_of_placements(snapshot, placements, reasons), notes=plan.notes)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a machine: an offer of its own, in the place of the `machine`."""

    offer: Offer
    machine: str
    kind: str


class _Parts:
    """The machines of a pool in parts of equal size."""

    def __init__(self, snapshot: Snapshot, pool: Pool) -> None:
        self._snapshot = snapshot
        self._pool = pool
        size = min(devices for devices in pool.capacity.values() if devices)
        machines = {offer.id: offer for offer in snapshot.offers if offer.shared}
        self._parts = {
            part.offer.id: part
            for machine, devices in pool.capacity.items()
            for part in _split(machines[machine], devices, size)
        }

    def alike(self) -> Snapshot:
        """The moment with parts for machines, and of each job one model for all kinds."""
        packing = Packing({name: part.offer.devices for name, part in self._parts.items()})
        jobs = []
        for job in sorted(self._snapshot.jobs, key=lambda job: -_devices(job)):
            held = self._in_parts(job, packing)
            jobs.append(replace(job, placement=held, models=self._models(job)))
        offers = tuple(part.offer for part in self._parts.values())
        return replace(
            self._snapshot, offers=offers, jobs=tuple(jobs), unavailable=frozenset[str]()
        )

    def repaired(self, job: JobSnapshot, placement: Placement | None) -> Placement | None:
        """What is left of a placement on parts: those of one kind, on their machines."""
        usable = self._pool.for_job(job)
        of_kinds: Counter[str] = Counter()
        on_machines: dict[str, Counter[str]] = {kind: Counter() for kind in usable}
        for name, devices in placement.shares if placement else ():
            part = self._parts[name]
            if part.kind in usable:
                of_kinds[part.kind] += devices
                on_machines[part.kind][part.machine] += devices
        if not of_kinds:
            return None
        best = max(of_kinds, key=lambda kind: (of_kinds[kind], _speed(job, kind), kind))
        return Placement(tuple(sorted(on_machines[best].items())))

    def _in_parts(self, job: JobSnapshot, packing: Packing) -> Placement | None:
        found: Counter[str] = Counter()
        for machine, devices in job.placement.shares if job.placement else ():
            own = [name for name, part in self._parts.items() if part.machine == machine]
            where = packing.fit(devices, among=own) or packing.emptiest(devices, among=own)
            packing.take(where)
            found.update(dict(where.shares if where else ()))
        return Placement(tuple(sorted(found.items()))) if found else None

    def _models(self, job: JobSnapshot) -> Mapping[str, ThroughputModel]:
        known = [model for kind, model in job.models.items() if kind in self._pool.by_kind()]
        best = max(known, key=most_measured, default=None)
        return {} if best is None else {_ANY: best}


def _devices(job: JobSnapshot) -> int:
    return job.placement.devices if job.placement else 0


def _split(machine: Offer, devices: int, size: int) -> Iterable[_Part]:
    for place, first in enumerate(range(0, devices, size)):
        name = f"{crc32(f'{machine.id}/{place}'.encode()):08x}/{machine.id}/{place}"
        part = replace(machine, id=name, devices=min(size, devices - first), device_kind=_ANY)
        yield _Part(part, machine.id, machine.device_kind)


def _speed(job: JobSnapshot, kind: str) -> float:
    (rate,) = goodputs(job, job.models.get(kind), [(1, 1)])
    return rate
