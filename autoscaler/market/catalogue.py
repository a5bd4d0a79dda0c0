"""Catalogue of the instance types that the clouds sell, known without asking the clouds.

`catalogue.csv` is the table. Prices are on-demand, in US dollars per hour, in the region of
their row. Sources of the columns:

- prices: the public price lists in karpenter (AWS, us-east-1) and karpenter-provider-gcp (GCP,
  us-central1), of the day in `as_of`. For GCP's n1, which that list prices without GPUs, the
  GPU's list price in `source` is added per GPU;
- GPUs and vCPUs: EC2's DescribeInstanceTypes and user guide; Compute Engine's machine types.
  GPUs are optional on an n1: here each GPU has 8 vCPUs, and the name holds kind and number;
- network: the sustained bandwidth of the whole instance. For AWS, EC2's baseline where the user
  guide says "up to"; for GCP, the egress limit of the type without a premium network, of one
  network interface: of the five of an a3-highgpu-8g, Castor's instances have one.

Types with GPUs that `device_kinds` lacks and types without an on-demand price are left out.
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
from autoscaler.market.prices import Price

_BYTES_PER_GBIT: Final = 1e9 / 8
# Both clouds bill Linux instances by the second, and at least one minute.
MINIMUM_BILLED_SECONDS: Final = 60


class UnknownInstanceType(CastorError):
    """The instance type is not in the catalogue."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """An instance type. `price` is its on-demand price in `region`."""

    provider: str
    name: str
    devices: int
    device_kind: str
    vcpus: int
    network_bytes_per_second: float
    region: str
    price: Price


@cache
def catalogue() -> Mapping[str, InstanceType]:
    """Return all instance types by name; names are unique across clouds."""
    table = resources.files("autoscaler.market").joinpath("catalogue.csv").read_text("utf-8")
    types = (_instance_type(row) for row in csv.DictReader(table.splitlines()))
    return MappingProxyType({known_type.name: known_type for known_type in types})


def instance_type(name: str) -> InstanceType:
    """Return the instance type of that name.

    Raises:
        UnknownInstanceType: there is none; the error suggests a similar name if there is one.
    """
    types = catalogue()
    if name in types:
        return types[name]
    similar = difflib.get_close_matches(name, types, n=1)
    suggestion = f': did you mean "{similar[0]}"?' if similar else ""
    raise UnknownInstanceType(f'"{name}" is not in the catalogue{suggestion}')


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
