"""Interval of heartbeats, by the number of instances that send them."""

from __future__ import annotations

from typing import Final

_SMALL_FLEET_PER_SECOND: Final = 100.0
_USUAL_SECONDS: Final = 10.0
_MOST_PER_SECOND: Final = 1_000.0
_MISSED_HEARTBEATS: Final = 3.0


def heartbeat_seconds(instances: int, least_seconds: float) -> float:
    """Return the seconds between two heartbeats of each of so many instances.

    A small fleet sends 100 a second in all, so that orders reach it at once; from 1,000 instances
    on each sends one every 10 s, until from 10,000 on all send 1,000 a second.
    """
    small = min(instances / _SMALL_FLEET_PER_SECOND, _USUAL_SECONDS)
    return max(least_seconds, small, instances / _MOST_PER_SECOND)


def silence_seconds(instances: int, least_seconds: float) -> float:
    """Return the seconds without a heartbeat after which an instance is given up."""
    return max(least_seconds, _MISSED_HEARTBEATS * heartbeat_seconds(instances, 0.0))
