"""Facts about machine series that Compute Engine does not report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autoscaler.domain.offer import Purchase
from autoscaler.market.catalogue import catalogue
from providers.gcp.kinds import kinds_of
from providers.gcp.series import series_of, unfit_disk_reason, unsold_reason
from providers.gcp.settings import GcpSettings
from tests.providers.gcp.cloud import GcpWorld

GBIT = 1e9 / 8


class Zones:
    """Calls that list one machine type."""

    def __init__(self, name: str, cpus: int, accelerator: str) -> None:
        own = SimpleNamespace(guest_accelerator_type=accelerator, guest_accelerator_count=8)
        self._machine = SimpleNamespace(
            name=name, guest_cpus=cpus, memory_mb=1_916_928, accelerators=[own]
        )

    def machine_types(self, zone: str, wanted: str) -> list[Any]:
        return [SimpleNamespace(items=[self._machine])]


def settings_of(world: GcpWorld, machine_type: str) -> GcpSettings:
    world.document["pools"]["gpu"]["machine_types"] = [machine_type]
    return world.settings


@pytest.mark.parametrize(
    ("machine_type", "cpus", "accelerator"),
    [
        ("a3-highgpu-8g", 208, "nvidia-h100-80gb"),
        ("a3-megagpu-8g", 208, "nvidia-h100-mega-80gb"),
        ("a3-ultragpu-8g", 224, "nvidia-h200-141gb"),
        ("a4-highgpu-8g", 224, "nvidia-b200"),
    ],
)
def test_an_instance_has_the_bandwidth_of_one_interface(
    world: GcpWorld, machine_type: str, cpus: int, accelerator: str
) -> None:
    """Templates make one, whatever the machine has."""
    calls: Any = Zones(machine_type, cpus, accelerator)
    kind = kinds_of(settings_of(world, machine_type), calls)[machine_type]
    assert kind.network_bytes_per_second == 200 * GBIT


def test_the_catalogue_and_the_series_agree() -> None:
    for entry in catalogue().values():
        series = series_of(entry.name) if entry.provider == "gcp" else None
        if series is not None and series.gbit_per_second is not None:
            assert entry.network_bytes_per_second == series.gbit_per_second * GBIT, entry.name


def test_the_longest_beginning_of_a_type_counts() -> None:
    assert unsold_reason("a3-highgpu-8g", Purchase.ON_DEMAND) is None
    assert unsold_reason("a3-highgpu-4g", Purchase.ON_DEMAND) is not None
    told = unsold_reason("a4x-highgpu-4g", Purchase.SPOT)
    assert (
        told
        == "Google sells a4x-highgpu-4g by reservation only: reserve it, or choose another type"
    )


def test_of_a_series_that_is_not_known_nothing_is_refused() -> None:
    assert series_of("x9-new-8g") is None
    assert unsold_reason("x9-new-8g", Purchase.ON_DEMAND) is None
    assert unfit_disk_reason("x9-new-8g", "pd-standard") is None
