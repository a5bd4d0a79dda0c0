"""Allocations of one job: instances of an offer, or devices of shared machines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices on machines that jobs share: (offer id, devices), sorted by offer id."""

    shares: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        offers = [offer for offer, _ in self.shares]
        if not self.shares or any(devices < 1 for _, devices in self.shares):
            raise ValueError(f"a placement needs at least one device on each machine: {self}")
        if offers != sorted(set(offers)):
            raise ValueError(f"a placement must name each machine once, sorted by id: {self}")

    @property
    def devices(self) -> int:
        """Number of devices over all machines."""
        return sum(devices for _, devices in self.shares)

    def __str__(self) -> str:
        return ", ".join(f"{devices} on {offer}" for offer, devices in self.shares)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Number of instances of one offer, and the devices used on each instance.

    The job pays for whole instances and earns goodput from the devices in use. Using fewer devices
    than are paid for is legal and sometimes best.
    """

    offer: str
    instances: int
    devices_used: int

    def __post_init__(self) -> None:
        if self.instances < 1 or self.devices_used < 1:
            raise ValueError(f"instances and devices_used must be at least 1: {self}")

    @property
    def devices(self) -> int:
        """Devices in use over all instances (R of the throughput model)."""
        return self.instances * self.devices_used

    def __str__(self) -> str:
        return f"{self.instances} x {self.offer}"
