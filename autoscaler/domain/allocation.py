"""What one job holds, or might."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices on the machines of a pool that jobs share: (offer id, devices), by offer id."""

    shares: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        offers = [offer for offer, _ in self.shares]
        if not self.shares or any(devices < 1 for _, devices in self.shares):
            raise ValueError(f"a placement has devices: {self}")
        if offers != sorted(set(offers)):
            raise ValueError(f"a placement names each machine once, in order: {self}")

    @property
    def devices(self) -> int:
        """Devices over all machines."""
        return sum(devices for _, devices in self.shares)

    def __str__(self) -> str:
        return ", ".join(f"{devices} on {offer}" for offer, devices in self.shares)


@dataclass(frozen=True, slots=True)
class Allocation:
    """`instances` instances of one offer, each with `devices_used` of its devices at work.

    Money is paid for instances, goodput is earned by devices: using fewer devices than are paid
    for is legal and sometimes best.
    """

    offer: str
    instances: int
    devices_used: int

    def __post_init__(self) -> None:
        if self.instances < 1 or self.devices_used < 1:
            raise ValueError(f"an allocation holds something: {self}")

    @property
    def devices(self) -> int:
        """Devices at work over all instances (R of the throughput model)."""
        return self.instances * self.devices_used

    def __str__(self) -> str:
        return f"{self.instances} x {self.offer}"
