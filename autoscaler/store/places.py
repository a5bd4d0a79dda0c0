"""The places of a job's pool: which there are, and which comes next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autoscaler.domain.instance import InstancePhase


class Place(NamedTuple):
    """A slot of a job, the generation that is or was there, and how far that is."""

    slot: int
    generation: int
    phase: InstancePhase


def places_of(job: str, instances: Iterable[tuple[str, str, Place]]) -> list[Place]:
    """The places that a job has or ever had, from (id, job, place) of instances.

    One that was handed over to another job has left its name behind, which is not used twice.
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
    """The first slot that is free, and the generation that would be in it."""
    taken = {place.slot for place in places if place.phase is not InstancePhase.ENDED}
    slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
    return slot, 1 + max((place.generation for place in places if place.slot == slot), default=0)
