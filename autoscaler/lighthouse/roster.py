"""Who trains together in one job, where torchft can't be had.

A *world* is a set of members with one process group. Members ask at every round of steps; nobody
is answered before all who live have asked, so that all get the same answer. A world goes on as
long as its members do. Before another begins, their states are made equal through a checkpoint:
the member that is furthest publishes one, and whoever has another state loads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.domain.roster import Ask, Call, Order, OrderKind


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
        orders = self._next_orders(asks)
        self._asks.update(dict.fromkeys(orders))
        return orders

    def _next_orders(self, asks: Mapping[str, Ask]) -> Mapping[str, Order]:
        furthest = max(asks, key=lambda name: asks[name].step)
        source = asks[furthest]
        alike = tuple(name for name, ask in asks.items() if ask.state == source.state)
        if len(alike) == len(asks):
            return self._go(asks, source.origin)
        if not source.has_published:
            return {furthest: Order(OrderKind.PUBLISH)}
        load = Order(OrderKind.LOAD, origin=furthest, step=source.step, members=alike)
        # The source loads too: so all have what is in the files, whoever wrote them.
        return {name: load for name, ask in asks.items() if ask.state != (furthest, source.step)}

    def _go(self, asks: Mapping[str, Ask], origin: str) -> Mapping[str, Order]:
        is_whole = origin == self._world and set(asks) == set(self._members)
        if not is_whole or any(ask.has_failed for ask in asks.values()):
            self._generation += 1
            self._world = f"{self._incarnation}.{self._generation}"
            self._members = tuple(asks)
        go = Order(
            OrderKind.GO,
            origin=self._world,
            members=self._members,
            store=self._stores[self._members[0]],
        )
        return dict.fromkeys(asks, go)
