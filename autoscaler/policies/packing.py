"""The machines that jobs share while their devices are given out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from autoscaler.domain.allocation import Placement


class Packing:
    """What is left of each machine, and three ways to find devices for a job.

    `fit` leaves little in pieces: what one machine can hold goes on one, what is more takes whole
    machines. `tightest` gives as many devices of each of several machines and keeps distributed
    jobs apart. `emptiest` spreads. Each can be held to the machines `among` which to look; of
    equally good machines the first in the order of the capacity is taken.
    """

    def __init__(self, capacity: Mapping[str, int]) -> None:
        """All machines free: offer id -> devices."""
        self._capacity = capacity
        self._free = dict(capacity)
        self._distributed: Counter[str] = Counter()

    @property
    def free_devices(self) -> int:
        """Devices not given out, over all machines."""
        return sum(self._free.values())

    def has_room(self, placement: Placement) -> bool:
        """Whether these devices are free."""
        return all(devices <= self._free.get(offer, 0) for offer, devices in placement.shares)

    def keeps_apart(self, placement: Placement) -> bool:
        """Whether no machine would have two distributed jobs."""
        return not any(self._distributed[offer] for offer in distributed(placement))

    def take(self, placement: Placement | None) -> None:
        """Give these devices out; None is of none."""
        self._change(placement, 1)

    def give_back(self, placement: Placement | None) -> None:
        """Have them free again."""
        self._change(placement, -1)

    def fit(
        self,
        devices: int,
        held: Placement | None = None,
        among: Collection[str] | None = None,
    ) -> Placement | None:
        """Devices of one machine, or of whole ones, by preference where the job is.

        Of several machines the one with the least left over. None where they do not fit.
        """
        own = dict(held.shares if held else ())
        offers = self._offers(among)
        if devices > max((self._capacity[offer] for offer in offers), default=0):
            return self._whole_machines(devices, own, offers)
        roomy = [offer for offer in offers if self._free[offer] >= devices]
        if not roomy:
            return None
        best = min(roomy, key=lambda offer: (-own.get(offer, 0), self._free[offer]))
        return Placement(((best, devices),))

    def tightest(
        self, machines: int, devices: int, among: Collection[str] | None = None
    ) -> Placement | None:
        """`devices` of each of `machines` machines, those with the least room that is enough."""
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
        """Devices of the emptiest machines, each as far as it goes; None where none is free."""
        shares = {}
        for offer in self.roomiest(among):
            taken = min(devices, self._free[offer])
            if taken == 0:
                break
            shares[offer] = taken
            devices -= taken
        return _placement(shares.items()) if shares else None

    def roomiest(self, among: Collection[str] | None = None) -> list[str]:
        """The emptiest machines first."""
        return sorted(self._offers(among), key=lambda offer: -self._free[offer])

    def _offers(self, among: Collection[str] | None) -> list[str]:
        return [offer for offer in self._free if among is None or offer in among]

    def _whole_machines(
        self, devices: int, own: Mapping[str, int], offers: Collection[str]
    ) -> Placement | None:
        idle = [offer for offer in offers if 0 < self._free[offer] == self._capacity[offer]]
        idle.sort(key=lambda offer: (-own.get(offer, 0), -self._free[offer]))
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
    """The machines of a distributed job; none of another."""
    machines = frozenset(offer for offer, _ in placement.shares)
    return machines if len(machines) > 1 else frozenset()


def _placement(shares: Iterable[tuple[str, int]]) -> Placement:
    return Placement(tuple(sorted(shares)))
