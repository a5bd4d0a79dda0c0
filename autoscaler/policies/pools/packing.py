"""Free devices of shared machines, and ways to choose a placement among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from autoscaler.domain.allocation import Placement


class Packing:
    """Free devices of each machine, with three ways to choose a placement.

    `fit` limits fragmentation: a job goes on one machine if that can hold it, else on whole
    machines. `tightest` takes equal devices of several machines and keeps distributed jobs apart.
    `emptiest` spreads a job over the machines with the most free devices. `among` restricts each
    of them to some machines. Ties are broken by the order of the capacity.
    """

    def __init__(self, capacity: Mapping[str, int]) -> None:
        """Create the packing with all devices free.

        Args:
            capacity: devices of each machine by offer id.
        """
        self._capacity = capacity
        self._free = dict(capacity)
        self._distributed: Counter[str] = Counter()

    @property
    def free_devices(self) -> int:
        """Free devices over all machines."""
        return sum(self._free.values())

    def has_room(self, placement: Placement) -> bool:
        """Return whether the devices of the placement are free."""
        return all(devices <= self._free.get(offer, 0) for offer, devices in placement.shares)

    def keeps_apart(self, placement: Placement) -> bool:
        """Return whether no machine would have two distributed jobs."""
        return not any(self._distributed[offer] for offer in distributed(placement))

    def take(self, placement: Placement | None) -> None:
        """Mark the placement's devices as used; None has none."""
        self._change(placement, 1)

    def give_back(self, placement: Placement | None) -> None:
        """Mark the placement's devices as free; None has none."""
        self._change(placement, -1)

    def fit(
        self,
        devices: int,
        held: Placement | None = None,
        among: Collection[str] | None = None,
    ) -> Placement | None:
        """Return devices of one machine, or of whole ones if it is larger; None if none fits.

        Machines that hold more of `held` are preferred, then those with the fewest devices free.
        """
        held_devices = dict(held.shares if held else ())
        offers = self._offers(among)
        if devices > max((self._capacity[offer] for offer in offers), default=0):
            return self._whole_machines(devices, held_devices, offers)
        roomy = [offer for offer in offers if self._free[offer] >= devices]
        if not roomy:
            return None
        best = min(roomy, key=lambda offer: (-held_devices.get(offer, 0), self._free[offer]))
        return Placement(((best, devices),))

    def tightest(
        self, machines: int, devices: int, among: Collection[str] | None = None
    ) -> Placement | None:
        """Return `devices` of each of `machines` machines with least sufficient room, or None."""
        fitting = [
            offer
            for offer in self._offers(among)
            if self._free[offer] >= devices and (machines == 1 or not self._distributed[offer])
        ]
        if len(fitting) < machines:
            return None
        fitting.sort(key=lambda offer: self._free[offer])
        return _placement((offer, devices) for offer in fitting[:machines])

    def emptiest(self, devices: int, among: Collection[str] | None = None) -> Placement | None:
        """Return devices of the emptiest machines; fewer if not all are free, None if none is."""
        shares = {}
        for offer in self.roomiest(among):
            taken = min(devices, self._free[offer])
            if taken == 0:
                break
            shares[offer] = taken
            devices -= taken
        return _placement(shares.items()) if shares else None

    def roomiest(self, among: Collection[str] | None = None) -> list[str]:
        """Return the offer ids of the machines, most free devices first."""
        return sorted(self._offers(among), key=lambda offer: -self._free[offer])

    def _offers(self, among: Collection[str] | None) -> list[str]:
        return [offer for offer in self._free if among is None or offer in among]

    def _whole_machines(
        self, devices: int, held_devices: Mapping[str, int], offers: Collection[str]
    ) -> Placement | None:
        """Return devices of idle machines, those of the held placement first; None if too few."""
        idle = [offer for offer in offers if 0 < self._free[offer] == self._capacity[offer]]
        idle.sort(key=lambda offer: (-held_devices.get(offer, 0), -self._free[offer]))
        shares = {}
        for offer in idle:
            if devices == 0:
                break
            shares[offer] = min(devices, self._free[offer])
            devices -= shares[offer]
        return _placement(shares.items()) if devices == 0 else None

    def _change(self, placement: Placement | None, sign: int) -> None:
        if placement is None:
            return
        for offer, devices in placement.shares:
            self._free[offer] -= sign * devices
        for offer in distributed(placement):
            self._distributed[offer] += sign


def distributed(placement: Placement) -> frozenset[str]:
    """Return the machines of a distributed placement; empty if it is on a single machine."""
    machines = frozenset(offer for offer, _ in placement.shares)
    return machines if len(machines) > 1 else frozenset()


def _placement(shares: Iterable[tuple[str, int]]) -> Placement:
    return Placement(tuple(sorted(shares)))
