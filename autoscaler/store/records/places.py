"""Slots and generations of a job's instances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autoscaler.domain.instance import InstancePhase


class Place(NamedTuple):
    """Slot of a job, generation of an instance in the slot, and phase of that instance."""

    slot: int
    generation: int
    phase: InstancePhase


def places_of(job: str, instances: Iterable[tuple[str, str, Place]]) -> list[Place]:
    """Return all places that a job has used so far.

    `instances` are (id, holding job, place). The id of an instance that moved to another job still
    names its first place, which is not used again.
    """
    places = []
    for name, holder, place in instances:
        if holder == job:
            places.append(place)
        slot, _, generation = name.removeprefix(f"{job}-").partition("-")
        if name.startswith(f"{job}-") and slot.isdecimal() and generation.isdecimal():
            places.append(Place(int(slot), int(generation), InstancePhase.ENDED))
    return places


def next_place(places: Sequence[Place]) -> tuple[int, int]:
    """Return the lowest free slot, and the next generation in that slot."""
    taken = {place.slot for place in places if place.phase is not InstancePhase.ENDED}
    slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
    return slot, 1 + max((place.generation for place in places if place.slot == slot), default=0)
