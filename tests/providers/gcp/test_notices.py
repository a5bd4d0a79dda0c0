"""Preemptions: from the subscription, and from operations where it is silent."""

from __future__ import annotations

import json

import pytest

from autoscaler.domain.errors import Unavailable
from tests.fakes.faults import Fault
from tests.fakes.gcp import lifecycle
from tests.providers.gcp.cloud import NOTICE_SECONDS, SMALL_SPOT, GcpWorld, name_of

PULL = "pubsub.projects.subscriptions.pull"


def spot(world: GcpWorld, token: str = "1") -> str:
    provider = world.connect()
    launched = provider.launch(world.request(token, SMALL_SPOT))
    world.pass_time(10.0)
    return launched.id


def test_a_preemption_is_told_and_its_message_acknowledged(world: GcpWorld) -> None:
    taken, provider = spot(world), world.connect()
    provider.instances()
    lifecycle.preempt(world.project, name_of(taken))
    told_seconds = world.clock.now()
    (notice,) = provider.interruptions()
    assert (notice.instance, notice.notice_seconds) == (taken, told_seconds)
    assert notice.reclaim_seconds == told_seconds + NOTICE_SECONDS
    assert world.messages_left() == 0


@pytest.mark.parametrize("is_named", [True, False])
def test_without_its_subscription_a_preemption_is_seen_by_operations(
    world: GcpWorld, is_named: bool
) -> None:
    if not is_named:
        del world.document["regions"]["us-central1"]["subscription"]
    world.faults.add(Fault(PULL, code="forbidden", status=403, times=None))
    taken, provider = spot(world), world.connect()
    lifecycle.preempt(world.project, name_of(taken))
    world.pass_time(3.0)
    provider.instances()
    (notice,) = provider.interruptions()
    assert notice.instance == taken
    assert notice.notice_seconds == pytest.approx(world.clock.now() - 3.0)
    troubles = provider.condition().troubles
    assert [("us-central1: no reclaim notices" in one) for one in troubles] == [True] * is_named


def test_what_we_end_ourselves_is_no_reclaim(world: GcpWorld) -> None:
    ended, provider = spot(world), world.connect()
    provider.instances()
    provider.terminate([ended])
    provider.instances()
    assert list(provider.interruptions()) == []
    assert world.project.calls["compute.zoneOperations.list"] == 0


def test_the_end_of_the_longest_run_is_no_reclaim(world: GcpWorld) -> None:
    """Nor a sign that there is no capacity."""
    launched, provider = spot(world), world.connect()
    provider.instances()
    world.pass_time(604_800.0)
    provider.instances()
    assert list(provider.interruptions()) == []
    world.pass_time(10.0)
    assert [(one.id, one.state.value) for one in provider.instances()] == [
        (launched, "terminated")
    ]


def test_what_can_not_be_read_is_dropped_and_counted(world: GcpWorld) -> None:
    provider = world.connect()
    for body in ("poison", "[]", json.dumps({"protoPayload": {"methodName": "x"}})):
        world.put_message(body)
    assert list(provider.interruptions()) == []
    assert world.messages_left() == 0
    assert "3 unreadable messages" in provider.condition().troubles[0]


def test_what_is_nobodys_here_is_forgotten(world: GcpWorld) -> None:
    provider = world.connect()
    provider.instances()
    other = {
        "protoPayload": {
            "methodName": "compute.instances.preempted",
            "resourceName": "projects/p/zones/us-central1-a/instances/castor-test-other",
        },
        "timestamp": "2026-09-21T13:46:40.123456789Z",
    }
    world.put_message(json.dumps(other))
    assert list(provider.interruptions()) == []
    world.pass_time(100.0)
    assert list(provider.interruptions()) == []
    assert list(world.connect().interruptions()) == []


def test_without_a_list_nobody_knows_what_is_taken(world: GcpWorld) -> None:
    for action in ("compute.instances.aggregatedList", "compute.instances.list"):
        world.faults.add(Fault(action, code="backendError", status=503, times=None))
    with pytest.raises(Unavailable):
        world.connect().interruptions()


def test_the_end_of_a_run_is_told_ahead_and_not_of_all_at_once(world: GcpWorld) -> None:
    """Compute Engine deletes at the same moment what started together."""
    taken = [spot(world, token) for token in "123456"]
    provider = world.connect()
    started_seconds = world.clock.now()
    week_seconds = 7 * 86_400.0
    world.pass_time(week_seconds - 3700.0)
    provider.instances()
    assert list(provider.interruptions()) == []
    told: dict[str, float] = {}
    while len(told) < len(taken) and world.clock.now() < started_seconds + week_seconds:
        world.pass_time(100.0)
        for notice in provider.interruptions():
            told.setdefault(notice.instance, world.clock.now())
            left_seconds = notice.reclaim_seconds - told[notice.instance]
            assert 900.0 - 100.0 <= left_seconds <= 3600.0
            assert abs(notice.reclaim_seconds - started_seconds - week_seconds) < 100.0
    assert sorted(told) == sorted(taken)
    assert len(set(told.values())) > 3


def test_a_short_run_is_not_cut_shorter_by_its_notice(world: GcpWorld) -> None:
    run = {"instanceTerminationAction": "DELETE", "maxRunDuration": {"seconds": "3600"}}
    world.add_template("castor-gpu-spot", provisioningModel="SPOT", **run)
    taken, provider = spot(world), world.connect()
    world.pass_time(3000.0)
    provider.instances()
    assert list(provider.interruptions()) == []
    world.pass_time(300.0)
    assert [notice.instance for notice in provider.interruptions()] == [taken]


def test_an_instance_that_stops_has_no_run_that_ends(world: GcpWorld) -> None:
    taken, provider = spot(world), world.connect()
    world.pass_time(7 * 86_400.0 - 3700.0)
    provider.instances()
    lifecycle.shut_down(world.project, name_of(taken))
    world.pass_time(3000.0)
    provider.instances()
    assert list(provider.interruptions()) == []
