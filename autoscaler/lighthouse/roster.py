"""Who trains together in one job whose lighthouse is a roster.

A *world* is a set of members with one process group. Members ask at each change; nobody is
answered before all who live have asked, so that all get the same answer. A world goes on as long
as its members do. The members of a new world make their states equal among themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.domain.roster import Ask, Call, Order


class Roster:
    """The members of one job and what they ask; no I/O, no clock.

    `incarnation` tells this server's worlds from those of one that was here before.
    """

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._generation = 0
        self._world = ""
        self._members: tuple[str, ...] = ()
        self._stores: dict[str, str] = {}
        self._asks: dict[str, Ask | None] = {}

    def hear(self, call: Call) -> None:
        """Take in a sign of life."""
        self._stores[call.name] = call.store
        if call.ask is not None or call.name not in self._asks:
            self._asks[call.name] = call.ask

    def forget(self, name: str) -> None:
        """The member has left, or is lost."""
        self._asks.pop(name, None)
        self._stores.pop(name, None)

    @property
    def names(self) -> tuple[str, ...]:
        """All who are there: members, and those who want to be."""
        return tuple(self._asks)

    def orders(self) -> Mapping[str, Order]:
        """The orders that can be given now, by member; whoever gets one has to ask again."""
        asks = {name: ask for name, ask in self._asks.items() if ask is not None}
        if not asks or len(asks) < len(self._asks):
            return {}
        orders = self._go(asks)
        self._asks.update(dict.fromkeys(orders))
        return orders

    def _go(self, asks: Mapping[str, Ask]) -> Mapping[str, Order]:
        goes_on = set(asks) == set(self._members) and all(
            ask.world == self._world and not ask.has_failed for ask in asks.values()
        )
        if not goes_on:
            self._generation += 1
            self._world = f"{self._incarnation}.{self._generation}"
            self._members = tuple(asks)
        order = Order(self._world, self._members, self._stores[self._members[0]])
        return dict.fromkeys(asks, order)
