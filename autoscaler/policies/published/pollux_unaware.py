"""Pollux as the baseline of Sia (SOSP'23): unaware of the kinds of device of a pool.

Source: the simulator published with Sia, its policy `pollux_unaware` and the repair of its plans.
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
from autoscaler.policies.pools.optimism import goodputs
from autoscaler.policies.pools.packing import Packing
from autoscaler.policies.pools.pool import Pool, plan_of_placements, pool_of
from autoscaler.policies.pools.projection import most_measured
from autoscaler.policies.published.pollux import PolluxPolicy

_ANY = "any"


class PolluxUnawarePolicy(PolluxPolicy):
    """`PolluxPolicy` that treats every machine as several of the smallest machine's size and kind.

    A job given several kinds trains on the kind with the most devices, on the faster of two equal
    ones; the other devices are idle. The parts of machines are in an arbitrary but fixed order, as
    the genetic search of the published simulator takes them.
    """

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
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
    """Part of a machine, as an offer of its own.

    `machine` is the offer id of the whole machine, `kind` its kind of device.
    """

    offer: Offer
    machine: str
    kind: str


class _Parts:
    """Machines of a pool in parts of the smallest machine's size."""

    def __init__(self, snapshot: Snapshot, pool: Pool) -> None:
        self._snapshot = snapshot
        self._pool = pool
        size = min(devices for devices in pool.capacity.values() if devices)
        machines = {offer.id: offer for offer in snapshot.offers if offer.shared}
        self._parts = {
            part.offer.id: part
            for machine, devices in pool.capacity.items()
            for part in _parts_of(machines[machine], devices, size)
        }

    def alike(self) -> Snapshot:
        """Return the snapshot with parts for machines, and one model of each job for all kinds."""
        packing = Packing({name: part.offer.devices for name, part in self._parts.items()})
        jobs = []
        for job in sorted(self._snapshot.jobs, key=lambda job: -_held_devices(job)):
            held = self._in_parts(job, packing)
            jobs.append(replace(job, placement=held, models=self._models(job)))
        offers = tuple(part.offer for part in self._parts.values())
        return replace(
            self._snapshot, offers=offers, jobs=tuple(jobs), unavailable=frozenset[str]()
        )

    def repaired(self, job: JobSnapshot, placement: Placement | None) -> Placement | None:
        """Return a placement on parts as one on machines, reduced to its largest kind; or None."""
        usable = self._pool.for_job(job)
        devices_by_kind: Counter[str] = Counter()
        on_machines: dict[str, Counter[str]] = {kind: Counter() for kind in usable}
        for name, devices in placement.shares if placement else ():
            part = self._parts[name]
            if part.kind in usable:
                devices_by_kind[part.kind] += devices
                on_machines[part.kind][part.machine] += devices
        if not devices_by_kind:
            return None
        best = max(
            devices_by_kind,
            key=lambda kind: (devices_by_kind[kind], _single_device_goodput(job, kind), kind),
        )
        return Placement(tuple(sorted(on_machines[best].items())))

    def _in_parts(self, job: JobSnapshot, packing: Packing) -> Placement | None:
        """Return the job's present placement on parts of its machines; None if it has none."""
        shares: Counter[str] = Counter()
        for machine, devices in job.placement.shares if job.placement else ():
            machine_parts = [name for name, part in self._parts.items() if part.machine == machine]
            placement = packing.fit(devices, among=machine_parts) or packing.emptiest(
                devices, among=machine_parts
            )
            packing.take(placement)
            shares.update(dict(placement.shares if placement else ()))
        return Placement(tuple(sorted(shares.items()))) if shares else None

    def _models(self, job: JobSnapshot) -> Mapping[str, ThroughputModel]:
        """Return the model of the kind measured on the most devices, for the one kind of parts."""
        models = [model for kind, model in job.models.items() if kind in self._pool.by_kind()]
        best = max(models, key=most_measured, default=None)
        return {} if best is None else {_ANY: best}


def _held_devices(job: JobSnapshot) -> int:
    return job.placement.devices if job.placement else 0


def _parts_of(machine: Offer, devices: int, size: int) -> Iterable[_Part]:
    """Yield the parts of a machine, with names in an arbitrary but fixed order."""
    for index, first in enumerate(range(0, devices, size)):
        name = f"{crc32(f'{machine.id}/{index}'.encode()):08x}/{machine.id}/{index}"
        part = replace(machine, id=name, devices=min(size, devices - first), device_kind=_ANY)
        yield _Part(part, machine.id, machine.device_kind)


def _single_device_goodput(job: JobSnapshot, kind: str) -> float:
    """Return the useful examples per second on one device of a kind."""
    (rate,) = goodputs(job, job.models.get(kind), [(1, 1)])
    return rate
