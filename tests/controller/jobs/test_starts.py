from __future__ import annotations

import pytest

from autoscaler.controller.act.idle_instances import start_seconds
from autoscaler.controller.jobs.starts import measure_starts
from autoscaler.domain.instance import InstancePhase
from autoscaler.store.memory.store import memory_store
from autoscaler.store.repositories.measurements import START_DURATION
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, add_job, listed_instance, order
from tests.controller.cloud import offer


def launched(store: Store, network: str, launched_seconds: float) -> str:
    """One that was seen to run; returns its id."""
    one = offer(network, network=network)
    held = store.instances.order("digits", one, 1, "token of {}".format, launched_seconds)
    running = listed_instance(held.id, launched_seconds=launched_seconds)
    return store.instances.observe_cloud(held.id, running, launched_seconds).id


def told(store: Store, instance: str, phase: InstancePhase, at_seconds: float) -> None:
    store.instances.record_node(instance, phase, at_seconds)
    measure_starts(store, store.instances.alive(), at_seconds - 0.5, at_seconds)


def start_on(store: Store, network: str) -> float:
    return store.measurements.durations("digits")[network, START_DURATION].seconds


def test_a_start_is_from_launch_to_the_first_step() -> None:
    store = memory_store()
    add_job(store)
    one = launched(store, "near", NOW)
    told(store, one, InstancePhase.STARTING, NOW + 40)
    told(store, one, InstancePhase.TRAINING, NOW + 60)
    assert start_on(store, "near") == 60


def test_what_it_waits_for_others_to_leave_is_no_part_of_it_and_its_script_s_start_is() -> None:
    store = memory_store()
    add_job(store)
    old, new = launched(store, "near", NOW), launched(store, "far", NOW + 100)
    told(store, old, InstancePhase.TRAINING, NOW + 60)
    told(store, new, InstancePhase.READY, NOW + 140)
    told(store, old, InstancePhase.DRAINING, NOW + 150)
    told(store, old, InstancePhase.DRAINED, NOW + 640)
    told(store, new, InstancePhase.STARTING, NOW + 641)
    told(store, new, InstancePhase.TRAINING, NOW + 660)
    assert start_on(store, "far") == pytest.approx(40 + 20)
    assert start_seconds(store.instances.get(new)) == pytest.approx(40 + 20), "for a next trial"


def test_each_start_counts_once() -> None:
    store = memory_store()
    add_job(store)
    one = order(store).id
    store.instances.observe_cloud(one, listed_instance(one), NOW + 1)
    for at_seconds in (NOW + 10, NOW + 11, NOW + 12):
        told(store, one, InstancePhase.TRAINING, at_seconds)
    (mean,) = store.measurements.durations("digits").values()
    assert mean.count == 1
