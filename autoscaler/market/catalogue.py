"""The types of instances that the clouds sell, as known without asking them.

`catalogue.csv` is the table. Its prices are on-demand, in US dollars, in the region of their row.
Where the columns come from:

- prices: the public price lists that karpenter (AWS, us-east-1) and karpenter-provider-gcp (GCP,
  us-central1) keep, of the day in `as_of`. For GCP's n1 the list has machines only: the GPU's own
  list price, in `source`, is added for each;
- GPUs and vCPUs: EC2's DescribeInstanceTypes and user guide; Compute Engine's machine types. A
  GPU on an n1 is a choice of whoever launches it: here each comes with 8 vCPUs, and the name says
  which and how many;
- network: the bandwidth of the whole instance, sustained: EC2's baseline where its user guide
  says "up to"; for GCP the most that leaves a machine of that type without a premium network.

Types whose GPUs are not among `device_kinds`, and those without an on-demand price, are left out.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final

from autoscaler.domain.errors import CastorError
from autoscaler.market.device_kinds import device_kind
from autoscaler.market.prices import Price

_BYTES_PER_GBIT: Final = 1e9 / 8
# Both clouds bill Linux by the second, and at least a minute.
MINIMUM_BILLED_SECONDS: Final = 60


class UnknownInstanceType(CastorError):
    """The catalogue has no such type of instance."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One type of instance. `price` is its on-demand price in `region`."""

    provider: str
    name: str
    devices: int
    device_kind: str
    vcpus: int
    network_bytes_per_second: float
    region: str
    price: Price

    @property
    def device_memory_bytes(self) -> int:
        """The memory of one of its devices."""
        return device_kind(self.device_kind).memory_bytes


@cache
def catalogue() -> Mapping[str, InstanceType]:
    """Every type known, by its name; no two clouds share one."""
    table = resources.files("autoscaler.market").joinpath("catalogue.csv").read_text("utf-8")
    types = (_instance_type(row) for row in csv.DictReader(table.splitlines()))
    return MappingProxyType({found.name: found for found in types})


def instance_type(name: str) -> InstanceType:
    """The type of that name.

    Raises:
        UnknownInstanceType: there is none; the error names one that is alike, if any is.
    """
    known = catalogue()
    if name in known:
        return known[name]
    meant = difflib.get_close_matches(name, known, n=1)
    instead = f': did you mean "{meant[0]}"?' if meant else ""
    raise UnknownInstanceType(f'"{name}" is no type in the catalogue{instead}')


def _instance_type(row: Mapping[str, str]) -> InstanceType:
    as_of = datetime.fromisoformat(row["as_of"]).replace(tzinfo=UTC)
    return InstanceType(
        provider=row["provider"],
        name=row["instance_type"],
        devices=int(row["devices"]),
        device_kind=row["device_kind"],
        vcpus=int(row["vcpus"]),
        network_bytes_per_second=float(row["network_gbit_per_second"]) * _BYTES_PER_GBIT,
        region=row["region"],
        price=Price(Decimal(row["usd_per_hour"]), as_of.timestamp(), row["source"]),
    )
