"""Every call, failing in every way: nothing leaks, nothing is bought twice, the caps hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.faults import Fault, When
from tests.fakes.gcp.server import FakeGcp
from tests.providers.cloud.driving import Driver, Slot
from tests.providers.gcp.cloud import REGION, GcpWorld
from tests.providers.gcp.ways import WAYS

INSERT = "compute.instances.insert"
# Of these cells the suite takes what has shown the most; all go with `make test-gcp`.
ACTIONS = (
    *(INSERT, "compute.instances.get", "compute.instances.delete", "storage.objects.insert"),
    *("compute.instances.aggregatedList", "compute.zoneOperations.get"),
    *("compute.zoneOperations.list", "compute.machineTypes.list", "compute.regions.get"),
    *("compute.instanceTemplates.get", "cloudbilling.services.skus.list"),
    *("pubsub.projects.subscriptions.pull", "pubsub.projects.subscriptions.acknowledge"),
)
IN_SUITE = {
    INSERT: ("timeout before", "timeout after applying", "trouble in the operation", "empty"),
    "compute.instances.aggregatedList": ("empty",),
    "compute.instances.delete": ("timeout after applying",),
}
SLOTS = 2


def ways_of(action: str) -> list[str]:
    """Only an insert has errors in an operation that is looked at."""
    return [way for way, fault in WAYS.items() if action == INSERT or not is_later(fault)]


def is_later(fault: Fault) -> bool:
    return fault.when is When.IN_REPLY


def is_in_suite(action: str, way: str) -> bool:
    return way in IN_SUITE.get(action, ())


CELLS = [
    pytest.param(action, way, marks=() if is_in_suite(action, way) else pytest.mark.gcp)
    for action in ACTIONS
    for way in ways_of(action)
]


def check(world: GcpWorld, action: str, way: str) -> Driver:
    """Fill and clear under the fault, and see what is left."""
    driver = Driver(world, world.connect(), [Slot(f"slot{n}") for n in range(SLOTS)])
    fault = replace(WAYS[way], action=action, times=2)
    world.put_message("poison")
    world.faults.add(replace(fault))
    driver.fill()
    assert set(world.alive()) == {slot.instance for slot in driver.slots}
    world.faults.add(replace(fault))
    driver.clear()
    world.faults.clear()
    assert world.alive() == []
    assert world.most_alive <= SLOTS
    assert world.launched == SLOTS
    for error in driver.errors:
        assert "\n" not in str(error)
        assert any(known in str(error) for known in (REGION, world.name, "pools.gpu"))
    return driver


@pytest.mark.parametrize(("action", "way"), CELLS)
def test_a_fault_costs_nothing(fake: FakeGcp, tmp_path: Path, action: str, way: str) -> None:
    world = GcpWorld(fake, tmp_path, max_instances=SLOTS)
    check(world, action, way)
    assert world.project.calls[action] > 0


@pytest.mark.parametrize("way", ["timeout after applying", "empty"])
def test_a_fault_under_lag_costs_nothing(fake: FakeGcp, tmp_path: Path, way: str) -> None:
    world = GcpWorld(fake, tmp_path, max_instances=SLOTS)
    world.lag(lag_seconds=9.0, boot_seconds=9.0)
    check(world, INSERT, way)
