"""What operations come to, and what happens to instances without anybody's call."""

from __future__ import annotations

import base64
import json

import pytest
from google.api_core.exceptions import Forbidden, NotFound

from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.ground import START_SECONDS, ZONE, Ground, properties, request_id
from tests.fakes.gcp.subscriptions import Subscription

PLACE = ("g2-standard-4", ZONE, "SPOT")


def test_a_stockout_is_known_seconds_later(ground: Ground) -> None:
    ground.project.capacity[PLACE] = 1
    ground.running("one")
    same = request_id()
    made = ground.insert("two", same)
    assert ground.listed() == ["one", "two"]
    done = ground.wait(made)
    (error,) = done.error.errors
    assert error.code == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    assert done.http_error_status_code == 503
    assert ground.listed() == ["one"]
    assert ground.insert("two", same).error.errors[0].code == error.code
    assert ground.project.alive() == ["one"]
    ground.project.capacity[PLACE] = 1
    ground.running("two")


def test_a_quota_is_refused_at_once_or_by_the_operation(ground: Ground) -> None:
    ground.project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"] = 1.0
    ground.insert("one")
    with pytest.raises(Forbidden) as refused:
        ground.insert("two")
    assert refused.value.errors[0]["reason"] == "quotaExceeded"
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS" in str(refused.value)
    ground.project.quota_in_operation = True
    done = ground.wait(ground.insert("two"))
    (error,) = done.error.errors
    assert (error.code, done.http_error_status_code) == ("QUOTA_EXCEEDED", 403)
    assert error.error_details[0].quota_info.limit == 1.0
    ground.wait(ground.delete("one"))
    ground.running("two")


def test_one_that_is_deleted_while_it_is_made_was_never_there(ground: Ground) -> None:
    made = ground.insert("one")
    ground.wait(ground.delete("one"))
    done = ground.operations.get(project=ground.name, zone=ZONE, operation=made.name)
    assert done.error.errors[0].code == "OPERATION_CANCELED_BY_USER"
    ground.clock.advance(60.0)
    assert ground.project.remaining() == []


def system_operations(ground: Ground) -> list[str]:
    request = {"project": ground.name, "zone": ZONE, "filter": "operationType:compute"}
    return [one.operation_type for one in ground.operations.list(request=request)]


def test_a_preempted_instance_is_told_stopped_and_gone(ground: Ground) -> None:
    ground.project.subscriptions["notices"] = Subscription("notices")
    ground.running("one")
    lifecycle.preempt(ground.project, "one")
    assert ground.status("one") == "STOPPING"
    assert system_operations(ground) == ["compute.instances.preempted"]
    ground.clock.advance(31.0)
    assert ground.listed() == []
    (message,) = ground.project.subscriptions["notices"].messages
    entry = json.loads(base64.b64decode(message.data))
    assert entry["protoPayload"]["methodName"] == "compute.instances.preempted"
    assert entry["protoPayload"]["resourceName"].endswith(f"/zones/{ZONE}/instances/one")


def test_without_its_own_action_a_preempted_instance_is_stopped(ground: Ground) -> None:
    ground.project.templates["castor-gpu"]["properties"] = properties(
        scheduling={"provisioningModel": "SPOT"}
    )
    ground.running("one")
    lifecycle.preempt(ground.project, "one")
    ground.clock.advance(31.0)
    assert ground.status("one") == "TERMINATED"
    assert ground.project.alive() == []


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_longer_notice_goes_before_the_signal(ground: Ground, is_asked_for: bool) -> None:
    asked = {"preemption_notice_duration": {"seconds": 120}} if is_asked_for else {}
    ground.running("one", scheduling=asked)
    lifecycle.preempt(ground.project, "one", ahead_seconds=None if is_asked_for else 120.0)
    assert ground.status("one") == "RUNNING"
    ground.clock.advance(121.0)
    assert ground.status("one") == "STOPPING"
    ground.clock.advance(30.0)
    with pytest.raises(NotFound):
        ground.status("one")


def test_one_that_has_run_for_as_long_as_it_may_is_deleted(ground: Ground) -> None:
    """The dead man's switch of a launch: nobody calls, and it ends."""
    ground.project.subscriptions["notices"] = Subscription("notices")
    ground.running("one", scheduling={"max_run_duration": {"seconds": 3600}})
    ground.clock.advance(3590.0)
    assert ground.status("one") == "RUNNING"
    ground.clock.advance(20.0)
    assert ground.project.remaining() == []
    assert system_operations(ground) == ["compute.instances.deferredDelete"]
    assert ground.project.subscriptions["notices"].messages == []  # no sink is laid for it


def test_a_broken_host_is_left_or_the_end(ground: Ground) -> None:
    ground.project.subscriptions["notices"] = Subscription("notices")
    standard = {"provisioningModel": "STANDARD", "onHostMaintenance": "TERMINATE"}
    template = ground.project.templates["castor-gpu"]["properties"]
    template["scheduling"] = standard
    ground.running("one")
    ground.running("two", scheduling={"automatic_restart": False})
    for name in ("one", "two"):
        lifecycle.break_host(ground.project, name)
    assert (ground.status("one"), ground.status("two")) == ("STAGING", "TERMINATED")
    ground.clock.advance(10.0)
    assert ground.status("one") == "RUNNING"
    assert ground.project.alive() == ["one"]
    assert len(ground.project.subscriptions["notices"].messages) == 2


def test_one_that_shuts_down_by_itself_is_not_deleted(ground: Ground) -> None:
    ground.running("one")
    lifecycle.shut_down(ground.project, "one")
    assert ground.status("one") == "TERMINATED"
    assert system_operations(ground) == ["compute.instances.guestTerminate"]
    ground.wait(ground.delete("one"))
    assert ground.project.remaining() == []


@pytest.mark.gcp
def test_one_that_waits_for_capacity_gets_it_or_gives_up(ground: Ground) -> None:
    flexible = {"provisioning_model": "FLEX_START", "max_run_duration": {"seconds": 3600}}
    patient = {"request_valid_for_duration": {"seconds": 300}}
    place = ("g2-standard-4", ZONE, "FLEX_START")
    ground.project.capacity[place] = 0
    made = [ground.insert(name, scheduling=flexible, params=patient) for name in ("a", "b")]
    ground.clock.advance(100.0)
    assert [ground.status(name) for name in ("a", "b")] == ["PENDING"] * 2
    ground.project.capacity[place] = 1
    ground.clock.advance(300.0)
    first, second = (ground.wait(one) for one in made)
    assert not first.error.errors
    assert second.error.errors[0].code.startswith("ZONE_RESOURCE_POOL_EXHAUSTED")
    assert ground.project.alive() == ["a"]


def test_an_operation_of_another_zone_is_not_found(ground: Ground) -> None:
    made = ground.insert("one")
    with pytest.raises(NotFound):
        ground.operations.get(project=ground.name, zone="us-central1-b", operation=made.name)


def test_a_name_that_was_taken_again_is_not_lost(ground: Ground) -> None:
    """Two deletions of one instance, and the second ends when another has its name."""
    ground.running("one")
    first = ground.delete("one")
    ground.clock.advance(3.0)
    second = ground.delete("one")
    ground.wait(first)
    ground.insert("one")
    ground.wait(second)
    assert ground.project.alive() == ["one"]


def test_what_happened_anywhere_is_listed_at_once(ground: Ground) -> None:
    ground.running("one")
    lifecycle.take(ground.project, "one")
    assert ground.project.remaining() == []
    newest = ground.send("GET", f"zones/{ZONE}/operations", orderBy="creationTimestamp desc")
    assert newest.json()["items"][-1]["operationType"] == "insert"
    by_id = newest.json()["items"][-1]["id"]
    assert ground.send("GET", f"zones/{ZONE}/operations/{by_id}").json()["status"] == "DONE"
    wanted = "operationType=compute.instances.preempted"
    reply = ground.send("GET", "aggregated/operations", filter=wanted).json()
    (found,) = reply["items"][f"zones/{ZONE}"]["operations"]
    assert found["user"] == "system"
    assert found["targetLink"].endswith("/instances/one")


def test_a_wait_may_end_at_once(ground: Ground) -> None:
    ground.project.wait_seconds = 0.0
    made = ground.insert("one")
    assert ground.wait(made).status.name == "PENDING"
    assert ground.clock.now() == START_SECONDS


def test_one_that_is_taken_while_it_boots_ends_its_operation(ground: Ground) -> None:
    made = ground.insert("one")
    ground.clock.advance(3.0)
    lifecycle.take(ground.project, "one")
    assert ground.wait(made).status.name == "DONE"
    assert ground.project.remaining() == []


def test_a_wait_ends_after_two_minutes(ground: Ground) -> None:
    ground.project.provision_seconds = 1000.0
    made = ground.insert("one")
    begun_seconds = ground.clock.now()
    assert ground.wait(made).status.name == "RUNNING"
    assert 119.0 < ground.clock.now() - begun_seconds < 125.0
