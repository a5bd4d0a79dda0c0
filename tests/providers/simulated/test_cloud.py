"""Invariants of a simulated cloud at any time and for any calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.errors import InsufficientCapacity
from autoscaler.domain.instance import CloudInstance, CloudState, Interruption
from autoscaler.domain.offer import Purchase
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.ledger.bill import Bill
from tests.conformance.provider import order
from tests.providers.simulated.cloud import (
    NOTICE_SECONDS,
    START_SECONDS,
    SimulatedWorld,
    offer,
    spot,
    trace,
)


@dataclass(frozen=True)
class Call:
    """After `pause_seconds`, launch one of the offer, or end the oldest where there is none."""

    pause_seconds: int
    offer: str | None


CALLS = st.lists(
    st.builds(
        Call,
        pause_seconds=st.integers(0, 900),
        offer=st.sampled_from(["lasting", "bounded", "hazardous", None]),
    ),
    min_size=1,
    max_size=12,
)
COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


def new_world(counts: Sequence[int]) -> SimulatedWorld:
    return SimulatedWorld(
        offer(minimum_billed_seconds=60),
        spot("bounded"),
        spot("hazardous", reclaims_per_hour=2.0),
        capacity={"bounded": trace(*counts, gap_seconds=100.0)},
    )


def make(world: SimulatedWorld, call: Call, token: int) -> None:
    if call.offer is None:
        world.ours.terminate(world.alive()[:1])
        return
    with suppress(InsufficientCapacity):
        world.launch(call.offer, str(token))


def pass_event_by_event(world: SimulatedWorld, until_seconds: float) -> None:
    while True:
        moment = world.ours.next_event_seconds()
        if moment is None or moment > until_seconds:
            break
        assert moment > world.clock.now()
        world.clock.advance(moment - world.clock.now())
        world.ours.instances()
    world.clock.advance(until_seconds - world.clock.now())


@given(COUNTS, CALLS)
def test_how_often_a_cloud_is_asked_changes_nothing(counts: list[int], calls: list[Call]) -> None:
    watched, left_alone = new_world(counts), new_world(counts)
    for token, call in enumerate(calls):
        pass_event_by_event(watched, watched.clock.now() + call.pause_seconds)
        left_alone.clock.advance(call.pause_seconds)
        make(watched, call, token)
        make(left_alone, call, token)
    assert watched.ours.instances() == left_alone.ours.instances()
    assert watched.ours.interruptions() == left_alone.ours.interruptions()
    assert watched.ours.billed_usd() == left_alone.ours.billed_usd()
    assert watched.ours.next_event_seconds() == left_alone.ours.next_event_seconds()


@given(COUNTS, CALLS)
def test_nothing_changes_before_the_next_event(counts: list[int], calls: list[Call]) -> None:
    world = new_world(counts)
    for token, call in enumerate(calls):
        make(world, call, token)
        before = held(world)
        moment = world.ours.next_event_seconds()
        if moment is not None:
            just_before = math.nextafter(moment, -math.inf)
            world.clock.advance(just_before - world.clock.now())
            assert held(world) == before
        world.clock.advance(call.pause_seconds)


def held(world: SimulatedWorld) -> tuple[list[CloudInstance], Sequence[Interruption]]:
    """All that is told, but for what ended and drops out of the list by and by."""
    alive = [seen for seen in world.ours.instances() if seen.ended_seconds is None]
    return alive, world.ours.interruptions()


@given(COUNTS, CALLS)
def test_no_more_stay_than_there_are(counts: list[int], calls: list[Call]) -> None:
    world = new_world(counts)
    bound = trace(*counts, gap_seconds=100.0)
    for token, call in enumerate(calls):
        world.clock.advance(call.pause_seconds)
        make(world, call, token)
        bounded = [one for one in world.alive() if "bounded" in one]
        staying = set(bounded) - set(world.noticed())
        assert len(staying) <= bound.available(world.clock.now())
        most_lately = max(
            bound.available(world.clock.now() - ago) for ago in range(int(NOTICE_SECONDS) + 1)
        )
        assert len(bounded) <= most_lately


@given(COUNTS, CALLS)
def test_the_ledger_of_what_is_told_agrees_with_the_bill(
    counts: list[int], calls: list[Call]
) -> None:
    world = new_world(counts)
    told: dict[str, CloudInstance] = {}
    for token, call in enumerate(calls):
        world.clock.advance(call.pause_seconds)
        make(world, call, token)
        told |= {seen.id: seen for seen in world.ours.instances()}
    charged = [
        charge.usd
        for seen in told.values()
        for charge in Bill.of(lines_of(world, seen)).charges(world.clock.now())
    ]
    assert world.ours.billed_usd() == sum(charged)


def lines_of(world: SimulatedWorld, seen: CloudInstance) -> list[LedgerEntry]:
    (sold,) = [one for one in world.ours.offers() if one.id == seen.offer]
    moments = [(EntryKind.OPEN, seen.launched_seconds), (EntryKind.CLOSE, seen.ended_seconds)]
    return [
        LedgerEntry(
            kind, seen.id, "job", sold.id, sold.usd_per_hour, at, sold.minimum_billed_seconds
        )
        for kind, at in moments
        if at is not None
    ]


def test_the_end_of_an_offer_ends_its_instances_after_a_notice() -> None:
    end_seconds = START_SECONDS + 600.0
    ending = offer("own", Purchase.RESERVED, until_seconds=end_seconds)
    world = SimulatedWorld(ending, offer(), notice_period_seconds=NOTICE_SECONDS)
    held = world.ours.launch(replace(order(world.ours, "1"), offer=ending.id))
    world.clock.advance(end_seconds - NOTICE_SECONDS - 1.0 - START_SECONDS)
    assert not world.ours.interruptions()
    assert world.cloud.next_event_seconds() == end_seconds - NOTICE_SECONDS
    world.clock.advance(1.0)
    (notice,) = world.ours.interruptions()
    assert (notice.instance, notice.reclaim_seconds) == (held.id, end_seconds)
    world.clock.advance(NOTICE_SECONDS)
    (ended,) = world.ours.instances()
    assert (ended.state, ended.ended_seconds) == (CloudState.TERMINATED, end_seconds)
