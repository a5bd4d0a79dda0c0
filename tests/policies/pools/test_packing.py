from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.policies.pools.packing import Packing
from tests.conformance.pool_policy import placement_of


def packing(*free: int, devices: int = 4) -> Packing:
    """Machines of `devices` each, of which so many are free."""
    found = Packing({f"node-{number:03}": devices for number in range(len(free))})
    for number, left in enumerate(free):
        if left < devices:
            found.take(placement_of(**{f"node_{number:03}": devices - left}))
    return found


def test_what_fits_one_machine_goes_where_least_is_left_over() -> None:
    assert packing(4, 1, 2).fit(1) == placement_of(node_001=1)
    assert packing(4, 1, 2).fit(2) == placement_of(node_002=2)
    assert packing(4, 1, 2).fit(3) == placement_of(node_000=3)
    assert packing(3, 1, 2).fit(4) is None


def test_what_is_more_takes_machines_that_are_free_as_a_whole() -> None:
    assert packing(2, 4, 4).fit(8) == placement_of(node_001=4, node_002=4)
    assert packing(2, 4, 2).fit(8) is None
    assert packing(2, 4, 4).fit(5) == placement_of(node_001=4, node_002=1)


def test_a_job_grows_and_shrinks_where_it_is() -> None:
    assert packing(1, 4, 2).fit(2, held=placement_of(node_001=4)) == placement_of(node_001=2)
    assert packing(4, 4, 4).fit(8, held=placement_of(node_002=4)) == placement_of(
        node_000=4, node_002=4
    )


def test_what_is_given_back_is_free_again() -> None:
    found = packing(0, 2)
    found.give_back(placement_of(node_000=3))
    assert found.has_room(placement_of(node_000=3, node_001=2))
    assert not found.has_room(placement_of(node_000=4))
    assert not found.has_room(placement_of(node_009=1))
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


def test_distributed_jobs_get_as_much_of_each_of_several_machines_and_are_kept_apart() -> None:
    machines = packing(4, 4, 3, 4)
    assert machines.tightest(1, 2) == placement_of(node_002=2)
    wide = machines.tightest(2, 4)
    assert wide == placement_of(node_000=4, node_001=4)
    machines.take(placement_of(node_000=1, node_001=1))
    assert not machines.keeps_apart(placement_of(node_001=1, node_003=1))
    assert machines.keeps_apart(placement_of(node_001=3))
    assert machines.tightest(2, 3) == placement_of(node_002=3, node_003=3)
    assert machines.tightest(3, 3) is None
    machines.give_back(placement_of(node_000=1, node_001=1))
    assert machines.keeps_apart(placement_of(node_001=1, node_003=1))


def test_devices_of_the_emptiest_machines_go_as_far_as_they_do() -> None:
    assert packing(1, 3, 2).emptiest(4) == placement_of(node_001=3, node_002=1)
    assert packing(1, 0).emptiest(4) == placement_of(node_000=1)
    assert packing(0).emptiest(1) is None


def test_machines_to_look_at_can_be_named() -> None:
    machines, some = packing(4, 2, 3), ("node-001", "node-002")
    assert machines.fit(2, among=some) == placement_of(node_001=2)
    assert machines.fit(4, among=some) is None
    assert machines.tightest(1, 3, among=some) == placement_of(node_002=3)
    assert machines.emptiest(4, among=some) == placement_of(node_001=1, node_002=3)
