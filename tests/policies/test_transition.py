from __future__ import annotations

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.economics.supply.supply import supply_of
from autoscaler.policies.transition import releases_first
from tests.economics.cases import LARGE, SMALL, devices, snapshot

ONE = Allocation("local-small", 1, 1)
TWO = Allocation("local-small", 2, 1)
BIG = Allocation("local-large", 1, 2)


def test_what_has_room_beside_all_comes_first_and_the_rest_waits() -> None:
    supply = supply_of(snapshot(offers=(SMALL, LARGE), limits=[devices(4)]))
    waits = releases_first([(ONE, TWO), (TWO, BIG), (None, ONE), (TWO, ONE), (ONE, None)], supply)
    assert waits == (True, True, True, False, False)
    waits = releases_first([(ONE, TWO), (None, ONE), (ONE, BIG)], supply)
    assert waits == (False, False, True)


def test_a_limit_that_is_passed_holds_up_only_those_that_use_it() -> None:
    small = Limit("small", LimitUnit.INSTANCES, 1, frozenset({"local-small"}))
    limits = (small, devices(9, "all"))
    supply = supply_of(snapshot(offers=(SMALL, LARGE), limits=limits))
    waits = releases_first([(TWO, TWO), (None, BIG), (None, ONE)], supply)
    assert waits == (False, False, True)
