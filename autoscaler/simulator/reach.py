"""How far a profile reaches: how many instances of which offers, and batches, a job may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoscaler.domain.goodput import BatchBounds
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.step_times import Unprofiled


def profiled_maxima(
    profile: Profile, equipment: Iterable[Equipment], most: int
) -> tuple[tuple[str, int], ...]:
    """Offers of which fewer than `most` instances were profiled near enough, and how many were.

    Machines that jobs share are not counted: placements on those have any number of devices each.
    """
    found = []
    for each in equipment:
        reach = 0 if each.offer.shared else _reach(profile, each, most)
        if not each.offer.shared and reach < most:
            found.append((each.offer.id, reach))
    return tuple(found)


def bounds_on(
    maxima: Mapping[str, int], initial: int, maximum: int, *, adaptive: bool
) -> BatchBounds:
    """Batch bounds where a device of each kind bears so much, kind -> examples."""
    least = min(maxima.values())
    return BatchBounds(
        initial=initial,
        maximum=maximum,
        device_maximum=least,
        adaptive=adaptive,
        kind_maxima=tuple(sorted(each for each in maxima.items() if each[1] > least)),
    )


def _reach(profile: Profile, equipment: Equipment, most: int) -> int:
    for instances in range(1, most + 1):
        try:
            placement = (equipment.offer.devices,) * instances
            profile.device_batches(equipment.profile_kind, placement)
        except Unprofiled:
            return instances - 1
    return most
