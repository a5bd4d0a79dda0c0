from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.controller.offers.estimates import MarketEstimator
from autoscaler.domain.instance import (
    CloudInstance,
    CloudState,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.job import JobSpec
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store

NOW = 1_000_000.0
HOUR = 3600.0
SPOT = Offer(
    id="a-spot",
    provider="aws",
    instance_type="p3.2xlarge",
    zone="a",
    purchase=Purchase.SPOT,
    devices=1,
    device_kind="v100",
    usd_per_hour=Decimal("0.50"),
    boot_seconds=180.0,
    network_bytes_per_second=1e9,
    reclaims_per_hour=0.2,
)
OTHER = replace(SPOT, id="b-spot", zone="b")
FIXED = replace(SPOT, id="a", purchase=Purchase.ON_DEMAND, reclaims_per_hour=0.0)
OFFERS = (SPOT, OTHER, FIXED)


def launched(store: Store, offer: Offer, from_seconds: float) -> HeldInstance:
    held = store.instances.order("job", offer, 1, lambda name: name, from_seconds)
    seen = CloudInstance(held.id, held.id, offer.id, CloudState.RUNNING, {}, from_seconds)
    return store.instances.observe_cloud(held.id, seen, from_seconds)


def lost(store: Store, held: HeldInstance, after_seconds: float) -> None:
    assert held.launched_seconds is not None
    end_seconds = held.launched_seconds + after_seconds
    store.instances.take_back(held.id, end_seconds, end_seconds - 120.0)
    gone = CloudInstance(
        held.id, held.id, held.offer, CloudState.TERMINATED, {}, held.launched_seconds, end_seconds
    )
    store.instances.observe_cloud(held.id, gone, end_seconds)


def refused(store: Store, offer: Offer, at_seconds: float, kind: str) -> None:
    held = store.instances.order("job", offer, 1, lambda name: name, at_seconds)
    store.instances.launch_failed(held.id, "no more of it", at_seconds)
    store.capacity.refused(offer.id, kind, at_seconds, at_seconds + 60.0)


def believed(store: Store, now_seconds: float = NOW) -> dict[str, Offer]:
    found = MarketEstimator(store).believed(OFFERS, store.instances.alive(), now_seconds)
    return {offer.id: offer for offer in found}


@pytest.fixture
def store() -> Store:
    store = memory_store()
    store.jobs.add(JobSpec(name="job", command=("train",)), NOW - 100 * HOUR)
    return store


def test_a_controller_that_starts_anew_knows_what_the_one_before_learnt(store: Store) -> None:
    lasting = MarketEstimator(store)
    for n in range(6):
        lost(store, launched(store, SPOT, NOW - 10 * HOUR + n * HOUR), 900.0)
        now_seconds = NOW - 9 * HOUR + n * HOUR
        lasting.believed(OFFERS, store.instances.alive(), now_seconds)
    known = lasting.believed(OFFERS, store.instances.alive(), NOW)
    assert {offer.id: offer for offer in known} == believed(store)
    by_id = believed(store)
    assert by_id["a-spot"].reclaims_per_hour > 0.5
    assert by_id["a-spot"].reclaims_per_hour > by_id["b-spot"].reclaims_per_hour
    assert by_id["a"] == FIXED


def test_an_instance_that_was_just_launched_has_the_hazard_of_a_new_one(store: Store) -> None:
    new = launched(store, SPOT, NOW)
    experience = MarketEstimator(store)
    known = experience.believed(OFFERS, (new,), NOW)
    assert experience.reclaims_per_hour([new], NOW) == known[0].reclaims_per_hour


def test_what_is_held_long_is_believed_to_stay_longer_than_what_is_new(store: Store) -> None:
    old = launched(store, SPOT, NOW - 20 * HOUR)
    experience = MarketEstimator(store)
    known = experience.believed(OFFERS, (old,), NOW)
    hazard = experience.reclaims_per_hour([old], NOW)
    assert hazard is not None
    assert 0 < hazard < 0.7 * known[0].reclaims_per_hour
    assert experience.reclaims_per_hour([], NOW) is None


def test_forecasts_are_told_of_lives_as_they_are_and_of_outages(store: Store) -> None:
    for n in range(6):
        lost(store, launched(store, SPOT, NOW - 10 * HOUR + n * HOUR), 900.0)
    experience = MarketEstimator(store)
    experience.believed(OFFERS, store.instances.alive(), NOW)
    lives = experience.lives(OFFERS)
    assert set(lives) == {"a-spot", "b-spot"}, "nothing else is reclaimed"
    seen, unseen = lives["a-spot"], lives["b-spot"]
    assert seen.reclaim.ends[1] > unseen.reclaim.ends[1] - 1e-9
    assert sum(seen.reclaim.ends) > 9.0
    assert seen.reclaim.per_second[1] > unseen.reclaim.per_second[1]
    assert (unseen.there, unseen.out_seconds) == (1.0, 0.0)
    assert seen.there < 1.0
    assert 0.0 < seen.usually_there < unseen.usually_there


def test_a_loss_without_notice_counts_if_it_had_begun_to_work(store: Store) -> None:
    def hazard_after_loss(joins: bool) -> float:
        held = launched(store, SPOT, NOW - 2 * HOUR)
        if joins:
            store.instances.record_node(held.id, InstancePhase.TRAINING, NOW - 2 * HOUR + 200)
        gone = CloudInstance(
            held.id, held.id, SPOT.id, CloudState.TERMINATED, {}, NOW - 2 * HOUR, NOW - HOUR
        )
        store.instances.observe_cloud(held.id, gone, NOW - HOUR)
        return believed(store)["a-spot"].reclaims_per_hour

    assert hazard_after_loss(joins=False) <= SPOT.reclaims_per_hour
    assert hazard_after_loss(joins=True) > SPOT.reclaims_per_hour


def test_spot_is_waited_for_once_all_of_it_has_refused(store: Store) -> None:
    experience = MarketEstimator(store)
    refused(store, SPOT, NOW, "InsufficientCapacity")
    first = experience.believed(OFFERS, (), NOW)
    assert experience.waited_for(first, NOW) == frozenset()
    assert all(offer.fill_seconds == 0 for offer in first)
    refused(store, OTHER, NOW, "InsufficientCapacity")
    waits = {offer.id: offer.fill_seconds for offer in experience.believed(OFFERS, (), NOW)}
    assert experience.waited_for(first, NOW) == {"a-spot", "b-spot"}
    assert waits["a-spot"] == waits["b-spot"] > 60
    assert waits["a"] == 0
    assert experience.waited_for(first, NOW + 61) == frozenset()


def test_nobody_waits_for_what_the_account_may_not_have(store: Store) -> None:
    experience = MarketEstimator(store)
    refused(store, SPOT, NOW, "QuotaExceeded")
    refused(store, OTHER, NOW, "InsufficientCapacity")
    known = experience.believed(OFFERS, (), NOW)
    assert experience.waited_for(known, NOW) == frozenset()


def test_beliefs_do_not_move_while_nothing_happens(store: Store) -> None:
    held = launched(store, SPOT, NOW - HOUR)
    experience = MarketEstimator(store)
    known = {experience.believed(OFFERS, (held,), NOW + 10 * n) for n in range(30)}
    assert len(known) == 1
