"""Coverage of a profile: instances of each offer and batches that a job may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoscaler.domain.goodput import BatchBounds
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.step_times import Unprofiled


def profiled_maxima(
    profile: Profile, equipment: Iterable[Equipment], most: int
) -> tuple[tuple[str, int], ...]:
    """Return offers with fewer than `most` profiled instances, and the profiled number.

    Shared machines do not count, because their placements have any number of devices on each.
    """
    maxima = []
    for machine in equipment:
        profiled = 0 if machine.offer.shared else _profiled_instances(profile, machine, most)
        if not machine.offer.shared and profiled < most:
            maxima.append((machine.offer.id, profiled))
    return tuple(maxima)


def bounds_on(
    maxima: Mapping[str, int], initial: int, maximum: int, *, adaptive: bool
) -> BatchBounds:
    """Return batch bounds from the most examples per device of each kind."""
    least = min(maxima.values())
    return BatchBounds(
        initial=initial,
        maximum=maximum,
        device_maximum=least,
        adaptive=adaptive,
        kind_maxima=tuple(
            sorted(kind_maximum for kind_maximum in maxima.items() if kind_maximum[1] > least)
        ),
    )


def _profiled_instances(profile: Profile, equipment: Equipment, most: int) -> int:
    for instances in range(1, most + 1):
        try:
            placement = (equipment.offer.devices,) * instances
            profile.device_batches(equipment.profile_kind, placement)
        except Unprofiled:
            return instances - 1
    return most
