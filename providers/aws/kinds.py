"""Instance types of a region, from the catalogue or from EC2.

The catalogue names kinds of devices as the rest of Castor does. EC2 names the makers' products.
EC2 describes types that are not in the catalogue yet.
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
_MAX_FILTER_VALUES: Final = 100  # values of one filter; EC2 accepts 200
_GIGABITS: Final = re.compile(r"([\d.]+) Gigabit")
_DEVICE_KINDS: Final = {
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
# Cards of the catalogue's types that have several, as DescribeInstanceTypes has them in
# MaximumNetworkCards. Each card has an equal part of the bandwidth.
_NETWORK_CARDS: Final = {
    "g6e.24xlarge": 2,
    "g6e.48xlarge": 4,
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p5.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p6-b200.48xlarge": 8,
    "p6-b300.48xlarge": 16,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """Instance type that can be bought, and the zones of the region that offer it.

    `network_bytes_per_second` is that of all `network_cards` together.
    """

    name: str
    devices: int
    device_kind: str
    vcpus: int
    network_bytes_per_second: float
    zones: frozenset[str] = frozenset()
    network_cards: int = 1

    def bytes_per_second_of(self, cards: int) -> float:
        """Return the bandwidth of an instance with an interface on this many network cards."""
        return self.network_bytes_per_second * min(cards, self.network_cards) / self.network_cards


def kinds_of(calls: RegionCalls, names: Iterable[str]) -> Mapping[str, Kind]:
    """Return the types of these names that the region offers and whose devices are known, by name.

    Raises:
        ProviderError: EC2 did not list the types.
    """
    sorted_names = sorted(set(names))
    zones = _zones_by_type(calls, sorted_names)
    unlisted = [name for name in sorted_names if name not in catalogue()]
    described = {kind.name: kind for kind in _described_kinds(calls, unlisted)} if unlisted else {}
    kinds = {}
    for name in sorted_names:
        kind = described.get(name) or _catalogue_kind(name)
        if kind is None:
            _log.warning("%s: the devices of %s are unknown", calls.region, name)
        elif name in zones:
            kinds[name] = replace(kind, zones=frozenset(zones[name]))
    return kinds


def _zones_by_type(calls: RegionCalls, names: Sequence[str]) -> dict[str, set[str]]:
    zones: dict[str, set[str]] = {}
    for start in range(0, len(names), _MAX_FILTER_VALUES):
        filter_values = list(names[start : start + _MAX_FILTER_VALUES])
        for page in calls.pages(
            "DescribeInstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": filter_values}],
        ):
            with readable(f"{calls.region}: DescribeInstanceTypeOfferings"):
                for offering in page["InstanceTypeOfferings"]:
                    zones.setdefault(offering["InstanceType"], set()).add(offering["Location"])
    return zones


def _catalogue_kind(name: str) -> Kind | None:
    entry = catalogue().get(name)
    if entry is None:
        return None
    return Kind(
        *(name, entry.devices, entry.device_kind, entry.vcpus, entry.network_bytes_per_second),
        network_cards=_NETWORK_CARDS.get(name, 1),
    )


def _described_kinds(calls: RegionCalls, names: Sequence[str]) -> list[Kind]:
    """Return the types that EC2 describes.

    The call filters by name, since a list of names fails if EC2 does not know one of them.
    """
    kinds = []
    for start in range(0, len(names), _MAX_FILTER_VALUES):
        filter_values = list(names[start : start + _MAX_FILTER_VALUES])
        reply = calls.describe(
            "DescribeInstanceTypes", Filters=[{"Name": "instance-type", "Values": filter_values}]
        )
        with readable(f"{calls.region}: DescribeInstanceTypes"):
            kinds += [
                kind
                for description in reply["InstanceTypes"]
                if (kind := _described_kind(description))
            ]
    return kinds


def _described_kind(description: Mapping[str, Any]) -> Kind | None:
    gpus = description.get("GpuInfo", {}).get("Gpus", ())
    kinds = {_device_kind(gpu) for gpu in gpus}
    if len(kinds) != 1 or None in kinds:
        return None
    (kind,) = kinds
    assert kind is not None
    return Kind(
        description["InstanceType"],
        sum(gpu["Count"] for gpu in gpus),
        kind,
        description["VCpuInfo"]["DefaultVCpus"],
        _bytes_per_second(description["NetworkInfo"]),
        network_cards=max(len(description["NetworkInfo"].get("NetworkCards", ())), 1),
    )


def _device_kind(gpu: Mapping[str, Any]) -> str | None:
    name = str(gpu["Name"])
    if gpu.get("GpuPartitionSize", 1.0) < 1.0:
        return None  # a partition is not a whole device
    if name == "A100":
        is_large = gpu["MemoryInfo"]["SizeInMiB"] > _LARGE_A100_MIB
        return "a100-80" if is_large else "a100-40"
    return _DEVICE_KINDS.get(name)


def _bytes_per_second(network: Mapping[str, Any]) -> float:
    """Return the baseline bandwidth in bytes per second, or the bandwidth in EC2's text."""
    cards = network.get("NetworkCards", ())
    gigabits = sum(card.get("BaselineBandwidthInGbps", 0.0) for card in cards)
    if gigabits == 0:
        match = _GIGABITS.search(network["NetworkPerformance"])
        gigabits = float(match[1]) if match else 1.0
    return float(gigabits) * _BYTES_PER_GBIT
