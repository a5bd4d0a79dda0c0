"""The instance types of a region: what EC2 tells of them, and the catalogue where it knows them.

The catalogue names kinds of devices as the rest of Castor does; EC2 names the makers' products
and tells bandwidth of new types that the catalogue does not have yet.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from autoscaler.market.catalogue import catalogue
from providers.aws.calls import RegionCalls
from providers.cloud.replies import readable

_log = logging.getLogger(__name__)

_BYTES_PER_GBIT: Final = 1e9 / 8
_MOST_VALUES: Final = 100  # of one filter; EC2 takes 200
_GIGABITS: Final = re.compile(r"([\d.]+) Gigabit")
_KINDS: Final = {
    "P100": "p100",
    "V100": "v100",
    "T4": "t4",
    "A10G": "a10g",
    "L4": "l4",
    "L40S": "l40s",
    "H100": "h100",
    "H200": "h200",
    "B200": "b200",
    "B300": "b300",
}
_LARGE_A100_MIB: Final = 60_000


@dataclass(frozen=True, slots=True)
class Kind:
    """An instance type as one may buy it, and the zones of the region that have it."""

    name: str
    devices: int
    device_kind: str
    vcpus: int
    network_bytes_per_second: float
    zones: frozenset[str] = frozenset()


def kinds_of(calls: RegionCalls, names: Iterable[str]) -> Mapping[str, Kind]:
    """The types of these names that the region has, and whose devices are known.

    Raises:
        ProviderError: EC2 did not tell.
    """
    wanted = sorted(set(names))
    zones = _zones(calls, wanted)
    unlisted = [name for name in wanted if name not in catalogue()]
    told = {kind.name: kind for kind in _told_kinds(calls, unlisted)} if unlisted else {}
    found = {}
    for name in wanted:
        kind = told.get(name) or _known(name)
        if kind is None:
            _log.warning("%s: nothing is known of the devices of %s", calls.region, name)
        elif name in zones:
            found[name] = replace(kind, zones=frozenset(zones[name]))
    return found


def _zones(calls: RegionCalls, names: Sequence[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for start in range(0, len(names), _MOST_VALUES):
        few = list(names[start : start + _MOST_VALUES])
        for page in calls.pages(
            "DescribeInstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": few}],
        ):
            with readable(f"{calls.region}: DescribeInstanceTypeOfferings"):
                for one in page["InstanceTypeOfferings"]:
                    found.setdefault(one["InstanceType"], set()).add(one["Location"])
    return found


def _known(name: str) -> Kind | None:
    known = catalogue().get(name)
    if known is None:
        return None
    return Kind(
        name, known.devices, known.device_kind, known.vcpus, known.network_bytes_per_second
    )


def _told_kinds(calls: RegionCalls, names: Sequence[str]) -> list[Kind]:
    """EC2 refuses a list with an unknown name in it; a filter leaves it out."""
    found = []
    for start in range(0, len(names), _MOST_VALUES):
        few = list(names[start : start + _MOST_VALUES])
        reply = calls.describe(
            "DescribeInstanceTypes", Filters=[{"Name": "instance-type", "Values": few}]
        )
        with readable(f"{calls.region}: DescribeInstanceTypes"):
            found += [kind for told in reply["InstanceTypes"] if (kind := _told_kind(told))]
    return found


def _told_kind(told: Mapping[str, Any]) -> Kind | None:
    gpus = told.get("GpuInfo", {}).get("Gpus", ())
    kinds = {_device_kind(gpu) for gpu in gpus}
    if len(kinds) != 1 or None in kinds:
        return None
    (kind,) = kinds
    assert kind is not None
    return Kind(
        told["InstanceType"],
        sum(gpu["Count"] for gpu in gpus),
        kind,
        told["VCpuInfo"]["DefaultVCpus"],
        _bandwidth(told["NetworkInfo"]),
    )


def _device_kind(gpu: Mapping[str, Any]) -> str | None:
    name = str(gpu["Name"])
    if gpu.get("GpuPartitionSize", 1.0) < 1.0:
        return None  # a part of a device is no device
    if name == "A100":
        is_large = gpu["MemoryInfo"]["SizeInMiB"] > _LARGE_A100_MIB
        return "a100-80" if is_large else "a100-40"
    return _KINDS.get(name)


def _bandwidth(network: Mapping[str, Any]) -> float:
    """The baseline, which lasts; where EC2 has none, what the text says."""
    cards = network.get("NetworkCards", ())
    gigabits = sum(card.get("BaselineBandwidthInGbps", 0.0) for card in cards)
    if gigabits == 0:
        found = _GIGABITS.search(network["NetworkPerformance"])
        gigabits = float(found[1]) if found else 1.0
    return float(gigabits) * _BYTES_PER_GBIT
