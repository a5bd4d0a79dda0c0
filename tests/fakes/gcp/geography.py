"""Zones, machine types, accelerators and quotas of the fake Compute Engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ZONES: Final = (
    *("us-central1-a", "us-central1-b", "us-central1-c"),
    *("europe-west4-a", "europe-west4-b"),
)
GLOBAL: Final = "global"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Kind of GPU, and its quota metric if `regions.get` reports one."""

    name: str
    title: str
    metric: str
    most: int


@dataclass(frozen=True, slots=True)
class MachineType:
    """Machine type. Some families without accelerators take attached ones.

    Attributes:
        accelerator: the built-in accelerator, which can't be chosen; "" for none.
    """

    name: str
    cpus: int
    memory_mb: int
    accelerator: str = ""
    accelerators: int = 0

    @property
    def family(self) -> str:
        return self.name.partition("-")[0]


ACCELERATORS: Final = {
    accelerator.name: accelerator
    for accelerator in (
        Accelerator("nvidia-tesla-t4", "NVIDIA T4", "NVIDIA_T4_GPUS", 4),
        Accelerator("nvidia-tesla-v100", "NVIDIA V100", "NVIDIA_V100_GPUS", 8),
        Accelerator("nvidia-l4", "NVIDIA L4", "NVIDIA_L4_GPUS", 8),
        Accelerator("nvidia-tesla-a100", "NVIDIA A100 40GB", "NVIDIA_A100_GPUS", 16),
        Accelerator("nvidia-a100-80gb", "NVIDIA A100 80GB", "NVIDIA_A100_80GB_GPUS", 8),
        Accelerator("nvidia-h100-80gb", "NVIDIA H100 80GB", "NVIDIA_H100_GPUS", 8),
        Accelerator("nvidia-h200-141gb", "NVIDIA H200 141GB", "NVIDIA_H200_GPUS", 8),
    )
}
MACHINE_TYPES: Final = {
    machine_type.name: machine_type
    for machine_type in (
        MachineType("e2-standard-4", 4, 16_384),
        MachineType("n1-standard-4", 4, 15_360),
        MachineType("n1-standard-8", 8, 30_720),
        MachineType("g2-standard-4", 4, 16_384, "nvidia-l4", 1),
        MachineType("g2-standard-8", 8, 32_768, "nvidia-l4", 1),
        MachineType("g2-standard-24", 24, 98_304, "nvidia-l4", 2),
        MachineType("g2-standard-48", 48, 196_608, "nvidia-l4", 4),
        MachineType("a2-highgpu-1g", 12, 87_040, "nvidia-tesla-a100", 1),
        MachineType("a2-highgpu-8g", 96, 696_320, "nvidia-tesla-a100", 8),
        MachineType("a2-ultragpu-1g", 12, 174_080, "nvidia-a100-80gb", 1),
        MachineType("a3-highgpu-1g", 26, 239_616, "nvidia-h100-80gb", 1),
        MachineType("a3-ultragpu-8g", 224, 3_022_848, "nvidia-h200-141gb", 8),
        MachineType("a3-highgpu-8g", 208, 1_916_928, "nvidia-h100-80gb", 8),
    )
}
# Provisioning models that a machine type is not sold with.
UNSOLD: Final = {
    "a3-highgpu-1g": frozenset({"STANDARD"}),
    "a3-ultragpu-8g": frozenset({"STANDARD"}),
}
# Types of boot disk that a family or machine type does not support.
UNFIT_DISKS: Final = {
    "g2": frozenset({"pd-standard", "hyperdisk-balanced"}),
    "a2": frozenset({"hyperdisk-balanced"}),
    "n1": frozenset({"hyperdisk-balanced"}),
    "a3": frozenset({"pd-standard"}),
    "a3-ultragpu-8g": frozenset({"pd-standard", "pd-balanced", "pd-ssd"}),
}
# Families with attached accelerators.
CHOOSING: Final = frozenset({"n1"})
# Metrics without a name in the API's enum; on-demand H100 are counted elsewhere.
UNNAMED_METRICS: Final = frozenset({"NVIDIA_H100_GPUS"})


def region_of(zone: str) -> str:
    """Return the region of a zone, such as ``us-central1`` of ``us-central1-a``."""
    return zone.rpartition("-")[0]


def regions() -> list[str]:
    return sorted({region_of(zone) for zone in ZONES})


def offered() -> dict[str, set[str]]:
    """Return the machine types of each zone: all of them, but the newest not in zones b."""
    newest = {name for name, machine_type in MACHINE_TYPES.items() if machine_type.family == "a3"}
    return {zone: set(MACHINE_TYPES) - (newest if zone.endswith("b") else set()) for zone in ZONES}


def quotas() -> dict[tuple[str, str], float]:
    """Return limits that are enough for tests that are not about quotas."""
    limits = {
        "CPUS": 512.0,
        "A2_CPUS": 96.0,
        "PREEMPTIBLE_CPUS": 512.0,
        "INSTANCES": 720.0,
        "NVIDIA_T4_GPUS": 16.0,
        "NVIDIA_V100_GPUS": 8.0,
        "NVIDIA_L4_GPUS": 32.0,
        "NVIDIA_A100_GPUS": 16.0,
        "NVIDIA_A100_80GB_GPUS": 8.0,
        "PREEMPTIBLE_NVIDIA_T4_GPUS": 16.0,
        "PREEMPTIBLE_NVIDIA_V100_GPUS": 8.0,
        "PREEMPTIBLE_NVIDIA_L4_GPUS": 32.0,
        "PREEMPTIBLE_NVIDIA_A100_GPUS": 16.0,
        "PREEMPTIBLE_NVIDIA_A100_80GB_GPUS": 8.0,
        "PREEMPTIBLE_NVIDIA_H100_GPUS": 16.0,
    }
    of_regions = {
        (region, metric): limit for region in regions() for metric, limit in limits.items()
    }
    return {**of_regions, (GLOBAL, "GPUS_ALL_REGIONS"): 64.0}
