"""Profiled placements of a job's members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.step_times import Unprofiled
from autoscaler.simulator.training.base import Member


def placements_of(
    members: Sequence[Member], profile: Profile
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (kind of device, devices on each instance) for each profiled placement.

    A job that moves between instance sizes may hold a placement that was not profiled. Then the
    instances of each size count as a placement.

    Raises:
        Unprofiled: the instances of one size were not profiled.
    """
    by_kind: dict[str, tuple[int, ...]] = {}
    for member in members:
        by_kind[member.profile_kind] = (*by_kind.get(member.profile_kind, ()), member.devices)
    return tuple(
        part
        for kind, placement in sorted(by_kind.items())
        for part in _profiled_parts(profile, kind, placement)
    )


def _profiled_parts(
    profile: Profile, kind: str, placement: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    sizes = sorted(set(placement))
    try:
        profile.device_batches(kind, placement)
    except Unprofiled:
        if len(sizes) == 1:
            raise
        for size in sizes:
            yield kind, (size,) * placement.count(size)
        return
    yield kind, placement
