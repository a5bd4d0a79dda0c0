from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.policies.packing import Packing
from tests.conformance.pool_policy import placed


def packing(*free: int, devices: int = 4) -> Packing:
    """Machines of `devices` each, of which so many are free."""
    found = Packing({f"node-{number:03}": devices for number in range(len(free))})
    for number, left in enumerate(free):
        if left < devices:
            found.take(placed(**{f"node_{number:03}": devices - left}))
    return found


def test_what_fits_one_machine_goes_where_least_is_left_over() -> None:
    assert packing(4, 1, 2).fit(1) == placed(node_001=1)
    assert packing(4, 1, 2).fit(2) == placed(node_002=2)
    assert packing(4, 1, 2).fit(3) == placed(node_000=3)
    assert packing(3, 1, 2).fit(4) is None


def test_what_is_more_takes_machines_that_are_free_as_a_whole() -> None:
    assert packing(2, 4, 4).fit(8) == placed(node_001=4, node_002=4)
    assert packing(2, 4, 2).fit(8) is None
    assert packing(2, 4, 4).fit(5) == placed(node_001=4, node_002=1)


def test_a_job_grows_and_shrinks_where_it_is() -> None:
    assert packing(1, 4, 2).fit(2, held=placed(node_001=4)) == placed(node_001=2)
    assert packing(4, 4, 4).fit(8, held=placed(node_002=4)) == placed(node_000=4, node_002=4)


def test_what_is_given_back_is_free_again() -> None:
    found = packing(0, 2)
    found.give_back(placed(node_000=3))
    assert found.has_room(placed(node_000=3, node_001=2))
    assert not found.has_room(placed(node_000=4))
    assert not found.has_room(placed(node_009=1))
    assert found.free_devices == 5


@given(st.lists(st.integers(0, 8), max_size=6), st.integers(1, 60))
def test_what_fits_is_all_of_it_and_free(free: list[int], devices: int) -> None:
    machines = packing(*free, devices=8)
    found = machines.fit(devices)
    if found is not None:
        assert found.devices == devices
        assert machines.has_room(found)
    elif devices <= 8:
        assert max(free, default=0) < devices
    else:
        assert 8 * free.count(8) < devices
