"""Orders that wait in a cloud's queue, as plans, budgets and beliefs see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.observe.snapshots import job_snapshot
from autoscaler.controller.offers.estimates import MarketEstimator
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.instance import CloudInstance, CloudState, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.snapshot import JobSnapshot, ThroughputModel
from autoscaler.economics.explanation.reasons import place
from autoscaler.economics.pricing.starts import start_seconds
from autoscaler.economics.supply.supply import is_sure
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from tests.controller.world import World

NOW = 1_000_000.0
SURE = Offer(
    id="sure",
    provider="gcp",
    instance_type="a2-highgpu-1g",
    zone="a",
    purchase=Purchase.ON_DEMAND,
    devices=1,
    device_kind="a100-40",
    usd_per_hour=Decimal("3.67"),
    boot_seconds=180.0,
    network_bytes_per_second=1e9,
)
FLEX = replace(
    SURE,
    id="flex",
    purchase=Purchase.FLEX_START,
    usd_per_hour=Decimal("2.02"),
    fill_seconds=600.0,
)
OFFERS = (SURE, FLEX)


@pytest.fixture
def store() -> Store:
    store = memory_store()
    store.jobs.add(JobSpec(name="job", command=("train",)), NOW)
    return store


def ordered(store: Store, offer: Offer = FLEX, at_seconds: float = NOW) -> HeldInstance:
    return store.instances.order("job", offer, 1, lambda name: name, at_seconds)


def queued(store: Store, at_seconds: float = NOW) -> HeldInstance:
    held = ordered(store, FLEX, at_seconds)
    seen = CloudInstance(held.id, held.id, FLEX.id, CloudState.QUEUED, {}, None)
    return store.instances.observe_cloud(held.id, seen, at_seconds)


def launched(store: Store, held: HeldInstance, at_seconds: float) -> HeldInstance:
    seen = CloudInstance(held.id, held.id, held.offer, CloudState.RUNNING, {}, at_seconds)
    return store.instances.observe_cloud(held.id, seen, at_seconds)


def trains(store: Store, held: HeldInstance) -> None:
    store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 60)


def left(store: Store, held: HeldInstance, at_seconds: float) -> None:
    store.instances.release(held.id, at_seconds)
    seen = CloudInstance(held.id, held.id, FLEX.id, CloudState.TERMINATED, {}, None, at_seconds)
    store.instances.observe_cloud(held.id, seen, at_seconds)


def told(store: Store, *measured: tuple[int, int]) -> JobSnapshot:
    point = ThroughputParameters(0.1, 0.01, 0.02, 1e-3, 0.01, 1e-4, 1.5)
    model = ThroughputModel("a100-40", point, (point,), frozenset(measured))
    models: Mapping[str, ThroughputModel] = {"a100-40": model}
    instances = store.instances.of_job("job")
    return job_snapshot(store, store.jobs.get("job"), instances, OFFERS, models, NOW + 100)


def waits(store: Store, now_seconds: float) -> float:
    found = MarketEstimator(store).believed(OFFERS, store.instances.alive(), now_seconds)
    return {offer.id: offer.fill_seconds for offer in found}["flex"]


def test_what_may_not_come_is_not_sure_and_is_told_by_its_name() -> None:
    assert not is_sure(FLEX) and not is_sure(replace(FLEX, fill_seconds=0.0))
    assert place(FLEX) == "a2-highgpu-1g (flex-start, a)"


def test_what_waits_is_not_held_and_what_trains_is(store: Store) -> None:
    held = ordered(store, SURE)
    launched(store, held, NOW + 1)
    trains(store, held)
    queued(store, NOW + 50)
    queued(store, NOW + 50)
    job = told(store)
    assert job.held == job.trained == Allocation("sure", 1, 1)
    assert job.ordered_seconds == NOW


def test_a_part_that_has_come_is_not_all_until_it_was_measured(store: Store) -> None:
    first = queued(store)
    queued(store)
    assert told(store).held is None
    launched(store, first, NOW + 20)
    assert told(store).held == Allocation("flex", 2, 1)
    trains(store, first)
    assert told(store).held == Allocation("flex", 2, 1)
    settled = told(store, (1, 1))
    assert settled.held == settled.trained == Allocation("flex", 1, 1)


def test_waits_are_learnt_from_orders_that_came_waited_and_were_left(store: Store) -> None:
    assert waits(store, NOW) == pytest.approx(600.0, rel=0.1)
    waiting = queued(store)
    patient = waits(store, NOW + 3600.0)
    assert patient > 1200.0
    left(store, waiting, NOW + 3600.0)
    assert waits(store, NOW + 3700.0) == patient
    for number in range(9):
        launched(store, queued(store, NOW + 4000.0 + number), NOW + 4020.0 + number)
    assert waits(store, NOW + 5000.0) < 600.0


def test_a_refusal_is_no_wait(store: Store) -> None:
    held = ordered(store)
    store.instances.launch_failed(held.id, "a quota", NOW + 5000.0)
    assert waits(store, NOW + 5000.0) == waits(memory_store(), NOW)


def test_an_order_that_waits_is_nearer_its_turn_than_a_new_one(store: Store) -> None:
    experience = MarketEstimator(store)
    held = queued(store)
    usual = {one.id: one for one in experience.believed(OFFERS, (held,), NOW + 60)}["flex"]
    job = told(store)
    own = replace(job.switching, fill_seconds=experience.queue_seconds((held,)))
    assert 0 < own.fill_seconds["flex"] < usual.fill_seconds
    assert start_seconds(own, usual) < start_seconds(job.switching, usual)
    store.instances.release(held.id, NOW + 70)
    assert experience.queue_seconds(store.instances.alive()) == {}


def test_a_budget_is_not_spent_by_waiting(tmp_path: Path) -> None:
    budget = Decimal("0.001")
    world = World(tmp_path, ControllerSettings(replan_seconds=0.0, fleet_usd=budget))
    job = world.submit()
    world.set_target(job, 1)
    world.tick()
    offer = replace(world.cloud.sold[0], purchase=Purchase.FLEX_START, usd_per_hour=Decimal(900))
    held = world.store.instances.order(job, offer, 1, lambda name: "x", world.clock.now())
    seen = CloudInstance("q-1", "x", offer.id, CloudState.QUEUED, {}, None)
    world.store.instances.observe_cloud(held.id, seen, world.clock.now())
    world.tick()
    assert world.store.jobs.get(job).phase is not JobPhase.STOPPING
