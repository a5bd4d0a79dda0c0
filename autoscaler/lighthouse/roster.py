"""Membership of a job that trains with Castor's own roster instead of torchft's quorum.

A *world* is a set of members with one process group. Members ask at each change. All members
are answered together, once every living member has asked, so that all get the same answer. A
world lasts as long as its members do. Members of a new world equalize their states.
"""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.domain.roster import Ask, MemberHeartbeat, QuorumReply


class Roster:
    """The members of one job and their open requests; without I/O or clock.

    `incarnation` distinguishes this server's worlds from those of an earlier server.
    """

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._generation = 0
        self._world = ""
        self._members: tuple[str, ...] = ()
        self._stores: dict[str, str] = {}
        self._asks: dict[str, Ask | None] = {}

    def hear(self, call: MemberHeartbeat) -> None:
        """Record a member's heartbeat, with its request if it makes one."""
        self._stores[call.name] = call.store
        if call.ask is not None or call.name not in self._asks:
            self._asks[call.name] = call.ask

    def forget(self, name: str) -> None:
        """Remove a member that has left or is lost."""
        self._asks.pop(name, None)
        self._stores.pop(name, None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all members and of those that ask to join."""
        return tuple(self._asks)

    def orders(self) -> Mapping[str, QuorumReply]:
        """Return the orders that can be given now, by member.

        Empty until every living member has asked. A member that gets an order has to ask again.
        """
        asks = {name: ask for name, ask in self._asks.items() if ask is not None}
        if not asks or len(asks) < len(self._asks):
            return {}
        orders = self._orders_for(asks)
        self._asks.update(dict.fromkeys(orders))
        return orders

    def _orders_for(self, asks: Mapping[str, Ask]) -> Mapping[str, QuorumReply]:
        """Return one order for all: the current world, or a new world if its members changed."""
        is_unchanged = set(asks) == set(self._members) and all(
            ask.world == self._world and not ask.has_failed for ask in asks.values()
        )
        if not is_unchanged:
            self._generation += 1
            self._world = f"{self._incarnation}.{self._generation}"
            self._members = tuple(asks)
        order = QuorumReply(self._world, self._members, self._stores[self._members[0]])
        return dict.fromkeys(asks, order)
