"""Where on machines that jobs share devices are given, so that little is left in pieces."""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.domain.allocation import Placement


class Packing:
    """The machines of a pool while they are given out.

    What one machine can hold goes on one, and there where the least is left over; what is more
    takes whole machines, so that no machine has parts of two jobs that span several.
    """

    def __init__(self, capacity: Mapping[str, int]) -> None:
        """All machines free: offer id -> devices."""
        self._capacity = capacity
        self._largest = max(capacity.values(), default=0)
        self._free = dict(capacity)

    @property
    def free_devices(self) -> int:
        """Devices not given out, over all machines."""
        return sum(self._free.values())

    def has_room(self, placement: Placement) -> bool:
        """Whether these devices are free."""
        return all(devices <= self._free.get(offer, 0) for offer, devices in placement.shares)

    def take(self, placement: Placement | None) -> None:
        """Give these devices out; None is of none."""
        for offer, devices in placement.shares if placement else ():
            self._free[offer] -= devices

    def give_back(self, placement: Placement | None) -> None:
        """Have them free again."""
        for offer, devices in placement.shares if placement else ():
            self._free[offer] += devices

    def fit(self, devices: int, held: Placement | None = None) -> Placement | None:
        """Free devices for a job, by preference where it is; None where they do not fit.

        Of equally good machines the first by id.
        """
        own = dict(held.shares if held else ())
        if devices > self._largest:
            return self._whole_machines(devices, own)
        roomy = [offer for offer, free in self._free.items() if free >= devices]
        if not roomy:
            return None
        best = min(roomy, key=lambda offer: (-own.get(offer, 0), self._free[offer], offer))
        return Placement(((best, devices),))

    def _whole_machines(self, devices: int, own: Mapping[str, int]) -> Placement | None:
        idle = [offer for offer, free in self._free.items() if 0 < free == self._capacity[offer]]
        idle.sort(key=lambda offer: (-own.get(offer, 0), -self._free[offer], offer))
        shares = {}
        for offer in idle:
            if devices == 0:
                break
            shares[offer] = min(devices, self._free[offer])
            devices -= shares[offer]
        return Placement(tuple(sorted(shares.items()))) if devices == 0 else None
