"""The machine types of a project's zones, and the catalogue where it knows them.

The catalogue names kinds of devices as the rest of Castor does; Compute Engine names accelerators,
and tells of cores and memory, which are what prices are made of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from autoscaler.market.catalogue import catalogue
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.settings import GcpSettings, PoolForm

_log = logging.getLogger(__name__)

_BYTES_PER_GBIT: Final = 1e9 / 8
_MIB_PER_GIB: Final = 1024
# Of a machine that the catalogue lacks: what Compute Engine gives the smallest of its families.
_GBIT_PER_VCPU: Final = 2.0
_MOST_GBIT: Final = 32.0
KINDS: Final = {
    "nvidia-tesla-p100": "p100",
    "nvidia-tesla-v100": "v100",
    "nvidia-tesla-t4": "t4",
    "nvidia-l4": "l4",
    "nvidia-tesla-a100": "a100-40",
    "nvidia-a100-80gb": "a100-80",
    "nvidia-h100-80gb": "h100",
    "nvidia-h100-mega-80gb": "h100",
    "nvidia-h200-141gb": "h200",
    "nvidia-b200": "b200",
    "nvidia-b300": "b300",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A machine type with its accelerators as one may buy it, and the zones that have it."""

    name: str
    devices: int
    device_kind: str
    accelerator: str
    vcpus: int
    memory_gib: float
    network_bytes_per_second: float
    zones: frozenset[str] = frozenset()

    @property
    def family(self) -> str:
        """As ``g2`` of ``g2-standard-4``."""
        return self.name.partition("-")[0]


def kinds_of(settings: GcpSettings, calls: ProjectCalls) -> Mapping[str, Kind]:
    """What pools name, by its name in the catalogue, where zones have it.

    Raises:
        ProviderError: Compute Engine did not tell.
    """
    wanted = {
        pool.instance_type(machine): (machine, pool)
        for pool in settings.pools.values()
        for machine in pool.machine_types
    }
    found: dict[str, Kind] = {}
    for zone in sorted(
        {zone for pool in settings.pools.values() for zone in settings.zones_of(pool)}
    ):
        machines = _machines(calls, zone, {machine for machine, _ in wanted.values()})
        has_chosen = any(pool.accelerator for _, pool in wanted.values())
        chosen = _accelerators(calls, zone) if has_chosen else frozenset()
        for name, (machine, pool) in wanted.items():
            told = machines.get(machine)
            if told is None or (pool.accelerator and pool.accelerator.type not in chosen):
                continue
            kind = found.get(name) or _kind(name, told, pool)
            if kind is None:
                _log.warning("%s: nothing is known of the devices of %s", zone, name)
            else:
                found[name] = replace(kind, zones=kind.zones | {zone})
    return found


def _machines(calls: ProjectCalls, zone: str, names: Iterable[str]) -> dict[str, Any]:
    wanted = " OR ".join(f'(name = "{name}")' for name in sorted(names))
    found: dict[str, Any] = {}
    for page in calls.machine_types(zone, wanted):
        with readable(f"{zone}: machineTypes.list"):
            found |= {one.name: one for one in page.items}
    return found


def _accelerators(calls: ProjectCalls, zone: str) -> frozenset[str]:
    return frozenset(one.name for page in calls.accelerator_types(zone) for one in page.items)


def _kind(name: str, machine: Any, pool: PoolForm) -> Kind | None:
    """None where its devices are unknown, or there are none."""
    if pool.accelerator is not None:
        accelerator, count = pool.accelerator.type, pool.accelerator.count
    elif len(machine.accelerators) == 1:
        (told,) = machine.accelerators
        accelerator, count = told.guest_accelerator_type, told.guest_accelerator_count
    else:
        return None
    known = catalogue().get(name)
    device_kind = KINDS.get(accelerator) if known is None else known.device_kind
    if device_kind is None or count < 1:
        return None
    gbit = min(machine.guest_cpus * _GBIT_PER_VCPU, _MOST_GBIT)
    return Kind(
        name=name,
        devices=count,
        device_kind=device_kind,
        accelerator=accelerator,
        vcpus=machine.guest_cpus,
        memory_gib=machine.memory_mb / _MIB_PER_GIB,
        network_bytes_per_second=(
            gbit * _BYTES_PER_GBIT if known is None else known.network_bytes_per_second
        ),
    )
