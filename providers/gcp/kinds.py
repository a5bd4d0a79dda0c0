"""Machine types of a project's zones, from the catalogue and from Compute Engine.

The catalogue names kinds of devices as the rest of Castor does. Compute Engine names accelerators,
and reports the cores and memory that prices consist of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from autoscaler.market.catalogue import catalogue
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.series import series_of
from providers.gcp.settings import GcpSettings, PoolForm

_log = logging.getLogger(__name__)

_BYTES_PER_GBIT: Final = 1e9 / 8
_MIB_PER_GIB: Final = 1024
# Bandwidth of machines that neither the catalogue nor their series states: that of the smallest
# Compute Engine families.
_GBIT_PER_VCPU: Final = 2.0
_MAX_GBIT: Final = 32.0
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
    """Machine type with its accelerators that can be bought, and the zones that offer it."""

    name: str
    devices: int
    device_kind: str
    accelerator: str
    vcpus: int
    memory_gib: float
    network_bytes_per_second: float
    zones: frozenset[str] = frozenset()

    @property
    def machine_type(self) -> str:
        """Compute Engine's name of the machine type, without accelerators of an n1."""
        return self.name.partition("+")[0]

    @property
    def family(self) -> str:
        """Family of the machine type, such as ``g2`` of ``g2-standard-4``."""
        return self.name.partition("-")[0]


def kinds_of(settings: GcpSettings, calls: ProjectCalls) -> Mapping[str, Kind]:
    """Return the pools' types that zones offer, by name in the catalogue.

    Raises:
        ProviderError: Compute Engine did not list the types.
    """
    pools_by_type = {
        pool.instance_type(machine): (machine, pool)
        for pool in settings.pools.values()
        for machine in pool.machine_types
    }
    kinds: dict[str, Kind] = {}
    for zone in sorted(
        {zone for pool in settings.pools.values() for zone in settings.zones_of(pool)}
    ):
        machines = _machines(calls, zone, {machine for machine, _ in pools_by_type.values()})
        has_accelerator_pools = any(pool.accelerator for _, pool in pools_by_type.values())
        zone_accelerators = _accelerators(calls, zone) if has_accelerator_pools else frozenset()
        for name, (machine, pool) in pools_by_type.items():
            description = machines.get(machine)
            if description is None or (
                pool.accelerator and pool.accelerator.type not in zone_accelerators
            ):
                continue
            kind = kinds.get(name) or _kind(name, description, pool)
            if kind is None:
                _log.warning("%s: the devices of %s are unknown", zone, name)
            else:
                kinds[name] = replace(kind, zones=kind.zones | {zone})
    return kinds


def _machines(calls: ProjectCalls, zone: str, names: Iterable[str]) -> dict[str, Any]:
    name_filter = " OR ".join(f'(name = "{name}")' for name in sorted(names))
    machines: dict[str, Any] = {}
    for page in calls.machine_types(zone, name_filter):
        with readable(f"{zone}: machineTypes.list"):
            machines |= {machine.name: machine for machine in page.items}
    return machines


def _accelerators(calls: ProjectCalls, zone: str) -> frozenset[str]:
    return frozenset(
        accelerator.name for page in calls.accelerator_types(zone) for accelerator in page.items
    )


def _kind(name: str, machine: Any, pool: PoolForm) -> Kind | None:
    """Return the type without zones; None if it has no devices or their kind is unknown."""
    if pool.accelerator is not None:
        accelerator, count = pool.accelerator.type, pool.accelerator.count
    elif len(machine.accelerators) == 1:
        (machine_accelerator,) = machine.accelerators
        accelerator, count = (
            machine_accelerator.guest_accelerator_type,
            machine_accelerator.guest_accelerator_count,
        )
    else:
        return None
    entry = catalogue().get(name)
    device_kind = KINDS.get(accelerator) if entry is None else entry.device_kind
    if device_kind is None or count < 1:
        return None
    return Kind(
        name=name,
        devices=count,
        device_kind=device_kind,
        accelerator=accelerator,
        vcpus=machine.guest_cpus,
        memory_gib=machine.memory_mb / _MIB_PER_GIB,
        network_bytes_per_second=_network_bytes_per_second(name, machine),
    )


def _network_bytes_per_second(name: str, machine: Any) -> float:
    """Return the bandwidth of an instance with one network interface, as templates make them."""
    series, entry = series_of(machine.name), catalogue().get(name)
    if series is not None and series.gbit_per_second is not None:
        return series.gbit_per_second * _BYTES_PER_GBIT
    if entry is not None:
        return entry.network_bytes_per_second
    vcpus = int(machine.guest_cpus)
    return min(vcpus * _GBIT_PER_VCPU, _MAX_GBIT) * _BYTES_PER_GBIT
