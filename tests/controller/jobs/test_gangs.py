from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.controller.jobs.gangs import (
    LONGEST_PART_SECONDS,
    bounds_of_one_gang,
    broken_gangs,
    gangs_of,
    missing_gangs,
    next_number,
    phase_in_gang,
    place_of,
    start_facts,
    surplus_members,
)
from autoscaler.domain.facts import Fact
from autoscaler.domain.gang import GangPlace, GangSeat, GangStart, parse_seat, parse_start
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, ParallelismSpec
from tests.controller.cloud import offer

NOW_SECONDS = 5000.0


def member(
    number: int,
    index: int,
    phase: InstancePhase = InstancePhase.TRAINING,
    size: int = 2,
    **changes: object,
) -> HeldInstance:
    facts = {str(Fact.GANG): str(GangSeat(number, index, size))}
    held = HeldInstance(
        id=f"job-{number}-{index}",
        job="job",
        slot=number,
        generation=index,
        offer="small",
        devices_used=1,
        usd_per_hour=Decimal("0.1"),
        desired=Desired.PRESENT,
        phase=phase,
        requested_seconds=number * 10.0,
        launched_seconds=number * 10.0,
        facts=facts,
    )
    return replace(held, **changes)  # type: ignore[arg-type]


def reporting(held: HeldInstance, start: GangStart, rendezvous: str | None = None) -> HeldInstance:
    return replace(held, facts={**held.facts, **start_facts(held, start, rendezvous)})


def test_seats_and_starts_are_read_as_they_are_written() -> None:
    assert parse_seat(str(GangSeat(3, 1, 4))) == GangSeat(3, 1, 4)
    for start in (GangStart(7, is_over=True), GangStart(7, is_over=False)):
        assert parse_start(str(start)) == start


def test_the_address_is_known_once_all_members_are_ready() -> None:
    leader = reporting(member(1, 0, InstancePhase.READY), GangStart(0, False), "10.0.0.1:5")
    follower = member(1, 1, InstancePhase.PREPARING)
    assert place_of(follower, (leader, follower)) == GangPlace("job.1", 1, 1, 2, None)
    follower = replace(follower, phase=InstancePhase.READY)
    assert place_of(follower, (leader, follower)) == GangPlace("job.1", 1, 1, 2, "10.0.0.1:5")
    leader = reporting(
        replace(leader, phase=InstancePhase.STARTING), GangStart(1, False), "10.0.0.1:5"
    )
    place = place_of(follower, (leader, follower))
    assert place is not None and place.address == "10.0.0.1:5", "the leader started first"


def test_a_member_whose_script_ended_makes_all_start_again() -> None:
    leader = reporting(member(1, 0), GangStart(1, is_over=False), "10.0.0.1:5")
    follower = reporting(member(1, 1, InstancePhase.READY), GangStart(1, is_over=True))
    place = place_of(leader, (leader, follower))
    assert place == GangPlace("job.1", 2, 0, 2, None), "the address is that of the first start"
    leader = replace(leader, phase=InstancePhase.READY)
    leader = reporting(leader, GangStart(1, is_over=True), "10.0.0.1:6")
    place = place_of(leader, (leader, follower))
    assert place == GangPlace("job.1", 2, 0, 2, "10.0.0.1:6")


def test_a_script_that_ended_well_on_a_follower_starts_nothing() -> None:
    leader = reporting(member(1, 0), GangStart(1, is_over=False), "10.0.0.1:5")
    follower = reporting(member(1, 1, InstancePhase.WAITING), GangStart(1, is_over=False))
    place = place_of(leader, (leader, follower))
    assert place is not None and place.generation == 1


def test_a_follower_trains_when_its_leader_does() -> None:
    leader, follower = member(1, 0), member(1, 1, InstancePhase.STARTING)
    both = leader, follower
    assert phase_in_gang(follower, InstancePhase.STARTING, both) is InstancePhase.TRAINING
    assert phase_in_gang(follower, InstancePhase.PREPARING, both) is InstancePhase.PREPARING
    alone = replace(leader, desired=Desired.ABSENT), follower
    assert phase_in_gang(follower, InstancePhase.STARTING, alone) is InstancePhase.STARTING


def test_part_of_a_gang_waits_for_the_rest_for_a_limited_time() -> None:
    launched = member(1, 0, InstancePhase.BOOTING, launched_seconds=NOW_SECONDS)
    queued = member(1, 1, InstancePhase.QUEUED, launched_seconds=None)
    both = launched, queued
    assert not broken_gangs(both, NOW_SECONDS + LONGEST_PART_SECONDS - 1)
    (gang,) = broken_gangs(both, NOW_SECONDS + LONGEST_PART_SECONDS)
    assert gang.wanted == both


def test_a_script_without_a_session_gets_one_gang_of_any_offer() -> None:
    offers = (offer("small", 4), offer("large", 8), offer("odd", 3))
    bounds = bounds_of_one_gang(InstanceBounds(2, 16), ParallelismSpec(shard=8), offers)
    assert (bounds.minimum, bounds.most_of(offers[0]), bounds.most_of(offers[1])) == (1, 2, 1)


seats = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(0, 2),
        st.sampled_from(list(InstancePhase)),
        st.sampled_from(list(Desired)),
    ),
    max_size=12,
    unique_by=lambda seat: seat[:2],
)


def instances_in(drawn: list[tuple[int, int, InstancePhase, Desired]]) -> list[HeldInstance]:
    return [
        member(number, index, phase, size=3, desired=desired)
        for number, index, phase, desired in drawn
    ]


@given(drawn=seats)
def test_after_broken_gangs_are_given_back_only_whole_ones_are_left(
    drawn: list[tuple[int, int, InstancePhase, Desired]],
) -> None:
    instances = instances_in(drawn)
    given_back = {held.id for gang in broken_gangs(instances, NOW_SECONDS) for held in gang.wanted}
    left = [
        held
        for held in instances
        if held.desired is Desired.PRESENT
        and held.phase is not InstancePhase.ENDED
        and held.id not in given_back
    ]
    assert all(gang.is_whole for gang in gangs_of(left))
    assert not broken_gangs(left, NOW_SECONDS)


@given(drawn=seats, target=st.integers(0, 14))
def test_releases_and_orders_lead_to_the_whole_gangs_within_the_target(
    drawn: list[tuple[int, int, InstancePhase, Desired]], target: int
) -> None:
    instances = [
        held
        for held in instances_in(drawn)
        if held.desired is Desired.PRESENT and held.phase is not InstancePhase.ENDED
    ]
    released = {held.id for held in surplus_members(instances, target, 3)}
    left = [held for held in instances if held.id not in released]
    assert all(gang.is_whole for gang in gangs_of(left))
    ordered = missing_gangs(left, target, 3)
    number = next_number(instances)
    left += [member(number + gang, index, size=3) for gang in range(ordered) for index in range(3)]
    assert len(left) == target - target % 3
    assert len({held.id for held in left}) == len(left)
    whole = [gang for gang in gangs_of(instances) if gang.is_whole]
    kept = {held.id for held in left if held in instances}
    if any(gang.trains and gang.members[0].id not in kept for gang in whole):
        assert all(gang.trains for gang in whole if gang.members[0].id in kept)
