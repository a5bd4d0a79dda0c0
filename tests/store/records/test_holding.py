"""Names of instances are never used twice."""

from __future__ import annotations

from autoscaler.domain.instance import InstancePhase
from autoscaler.store.records.places import Place, places_of

RUNS, ENDED = InstancePhase.TRAINING, InstancePhase.ENDED


def test_what_was_given_away_has_left_its_name_behind() -> None:
    every = [
        ("s-1-0-1", "s-1", Place(0, 1, RUNS)),
        ("s-1-1-3", "s-2", Place(0, 1, RUNS)),  # given away
        ("s-7-0-1", "s-1", Place(2, 1, RUNS)),  # taken over
        ("s-1-0-0-9", "s-1-0", Place(0, 9, RUNS)),  # of a job whose name begins alike
    ]
    found = places_of("s-1", every)
    assert {(place.slot, place.generation) for place in found} == {(0, 1), (1, 3), (2, 1)}
    assert {place.slot for place in found if place.phase is RUNS} == {0, 2}
