"""Every call, failing in every way: nothing leaks, nothing is bought twice, the caps hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes.aws.faults import Fault, When
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import AwsWorld, error_of
from tests.providers.aws.ways import WAYS
from tests.providers.cloud.driving import Driver, Slot

# Of these cells the suite takes what has shown the most; all go with `make test-aws`.
ACTIONS = (
    *("CreateFleet", "DescribeInstances", "TerminateInstances", "PutObject"),
    *("DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory", "GetProducts"),
    *("ListServiceQuotas", "ReceiveMessage", "DeleteMessageBatch"),
)
IN_SUITE = {
    "CreateFleet": ("timeout before", "timeout after applying", "trouble in a 200", "empty"),
    "DescribeInstances": ("empty",),
    "TerminateInstances": ("timeout after applying",),
}
SLOTS = 2


def ways_of(action: str) -> list[str]:
    """Only fleets have errors in a reply that is none."""
    return [
        way for way, fault in WAYS.items() if action == "CreateFleet" or not is_of_fleet(fault)
    ]


def is_of_fleet(fault: Fault) -> bool:
    return fault.when is When.IN_REPLY


def is_in_suite(action: str, way: str) -> bool:
    return way in IN_SUITE.get(action, ())


CELLS = [
    pytest.param(action, way, marks=() if is_in_suite(action, way) else pytest.mark.aws)
    for action in ACTIONS
    for way in ways_of(action)
]


def check(world: AwsWorld, action: str, way: str) -> Driver:
    """Fill and clear under the fault, and see what is left."""
    driver = Driver(world, world.connect(), [Slot(f"slot{n}") for n in range(SLOTS)])
    fault = replace(WAYS[way], action=action, times=2)
    world.put_message("poison")
    world.account.faults.add(replace(fault))
    driver.fill()
    assert set(world.account.alive()) == {slot.instance for slot in driver.slots}
    world.account.faults.add(replace(fault))
    driver.clear()
    world.account.faults.clear()
    assert world.account.alive() == []
    assert world.account.most_alive <= SLOTS
    assert len(world.account.launched_seconds) == SLOTS
    for error in driver.errors:
        assert "\n" not in str(error)
        assert "us-east-1" in str(error) or "pools.gpu" in str(error)
    return driver


@pytest.mark.parametrize(("action", "way"), CELLS)
def test_a_fault_costs_nothing(fake: FakeAws, action: str, way: str) -> None:
    world = AwsWorld(fake, max_instances=SLOTS)
    check(world, action, way)
    assert world.account.calls[action] > 0


@pytest.mark.parametrize("way", ["timeout after applying", "empty"])
def test_a_fault_under_lag_costs_nothing(fake: FakeAws, way: str) -> None:
    world = AwsWorld(fake, max_instances=SLOTS)
    world.account.lag_seconds = 9.0
    check(world, "CreateFleet", way)


def test_without_tokens_that_are_known_again_a_lost_reply_is_bought_twice(
    world: AwsWorld,
) -> None:
    """Show that the other tests depend on the fake's memory of tokens, as on bare moto."""
    world.account.fleets = _Forgetful()
    world.account.lag_seconds = 10.0
    world.account.faults.add(Fault("CreateFleet", When.LOST_AFTER))
    provider = world.connect()
    error_of(lambda: provider.launch(world.request("1")))
    provider.launch(world.request("1"))
    assert len(world.account.alive()) == 2


class _Forgetful(dict):  # type: ignore[type-arg]
    """Fleets that forget client tokens, as bare moto does."""

    def get(self, key: object, default: object = None) -> None:
        return None
