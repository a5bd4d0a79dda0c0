from __future__ import annotations

import csv
import os
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.market.catalogue import UnknownInstanceType, catalogue, instance_type
from autoscaler.market.device_kinds import device_kind


def test_a_row_as_the_domain_has_it() -> None:
    found = instance_type("g4dn.12xlarge")
    assert (found.provider, found.devices, found.device_kind) == ("aws", 4, "t4")
    assert found.network_bytes_per_second == 6.25e9
    assert found.vcpus == 48
    assert found.region == "us-east-1"
    assert found.price.usd_per_hour == Decimal("3.912")
    assert found.price.as_of_seconds == datetime(2026, 7, 20, tzinfo=UTC).timestamp()


def test_every_row_is_sound() -> None:
    types = catalogue()
    assert {found.provider for found in types.values()} == {"aws", "gcp"}
    for found in types.values():
        assert found.device_kind == device_kind(found.device_kind).name
        assert found.devices in (1, 2, 4, 8, 16)
        assert found.vcpus >= 4
        assert 1e9 / 8 < found.network_bytes_per_second <= 6.4e12 / 8
        assert found.price.source


def test_one_machine_with_twice_the_devices_costs_more() -> None:
    """A price in the wrong row would show."""
    by_kind: dict[tuple[str, str], list[tuple[int, Decimal]]] = {}
    for found in catalogue().values():
        if found.name.startswith(("a2-highgpu", "a2-ultragpu", "a3", "p3.", "p5.", "n1")):
            key = (found.name[:4], found.device_kind)
            by_kind.setdefault(key, []).append((found.devices, found.price.usd_per_hour))
    for sizes in by_kind.values():
        each = [price / devices for devices, price in sizes]
        assert max(each) < min(each) * Decimal("1.01")


def test_an_unknown_type_names_one_that_is_alike() -> None:
    with pytest.raises(UnknownInstanceType, match=r'did you mean "g5.12xlarge"'):
        instance_type("g5.12xlrage")
    with pytest.raises(UnknownInstanceType, match=r"not in the catalogue$"):
        instance_type("zzz")


@pytest.mark.parametrize(
    ("file", "type_column"),
    [
        ("aws_gpu_ondemand_us-east-1_2026-07-20_karpenter.csv", "instance_type"),
        ("gcp_gpu_prices_2026-08-03_karpenter-gcp.csv", "machine_type"),
    ],
)
def test_prices_are_those_of_the_lists(file: str, type_column: str) -> None:
    data = os.environ.get("CASTOR_DATA")
    if data is None:
        pytest.skip("CASTOR_DATA is not set: no price lists")
    listed = {
        (row[type_column], row["region"]): Decimal(row["ondemand_usd_hr"])
        for row in csv.DictReader((Path(data) / "prices" / file).read_text().splitlines())
    }
    compared = [
        (found.price.usd_per_hour, listed[found.name, found.region])
        for found in catalogue().values()
        if (found.name, found.region) in listed
    ]
    assert len(compared) > 15
    assert all(ours == theirs for ours, theirs in compared)
