"""Limit on wrong codes and tokens that come from one network, against guessing."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import ip_address, ip_network
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import Throttled

WINDOW_SECONDS: Final = 600.0
"""Time after which the wrong tries of a network are forgotten."""

MOST_WRONG: Final = 20
_MOST_NETWORKS: Final = 10_000
_IPV6_PREFIX: Final = 64


class WrongTries:
    """Wrong tries by network. The caller holds a lock. `tries` names them, such as codes."""

    def __init__(self, clock: Clock, tries: str) -> None:
        self._clock = clock
        self._tries = tries
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def require_few(self, address: str) -> None:
        """Check that a network may try again.

        Raises:
            Throttled: too many wrong ones came from it.
        """
        count, since_seconds = self._counts.get(network(address), (0, 0.0))
        wait_seconds = since_seconds + WINDOW_SECONDS - self._clock.monotonic()
        if count >= MOST_WRONG and wait_seconds > 0:
            raise Throttled(
                f"too many wrong {self._tries} came from this address: try again in "
                f"{wait_seconds:.0f} s",
                wait_seconds,
            )

    def count(self, address: str) -> None:
        """Count a wrong try of a network."""
        name, now_seconds = network(address), self._clock.monotonic()
        count, since_seconds = self._counts.pop(name, (0, now_seconds))
        if since_seconds + WINDOW_SECONDS <= now_seconds:
            count, since_seconds = 0, now_seconds
        self._counts[name] = count + 1, since_seconds
        if len(self._counts) > _MOST_NETWORKS:
            self._counts.popitem(last=False)


def network(address: str) -> str:
    """Return what limits count an address by: itself, or the network of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ip_network((parsed, _IPV6_PREFIX), strict=False))
