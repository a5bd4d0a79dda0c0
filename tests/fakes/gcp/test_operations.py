"""Results of operations, and the cloud's own actions on instances."""

from __future__ import annotations

import base64
import json

import pytest
from google.api_core.exceptions import Forbidden, NotFound

from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.clients import START_SECONDS, ZONE, ProjectClients, properties, request_id
from tests.fakes.gcp.subscriptions import Subscription

PLACE = ("g2-standard-4", ZONE, "SPOT")


def test_a_stockout_is_known_seconds_later(clients: ProjectClients) -> None:
    clients.project.capacity[PLACE] = 1
    clients.running("one")
    same = request_id()
    made = clients.insert("two", same)
    assert clients.listed() == ["one", "two"]
    done = clients.wait(made)
    (error,) = done.error.errors
    assert error.code == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    assert done.http_error_status_code == 503
    assert clients.listed() == ["one"]
    assert clients.insert("two", same).error.errors[0].code == error.code
    assert clients.project.alive() == ["one"]
    clients.project.capacity[PLACE] = 1
    clients.running("two")


def test_a_quota_is_refused_at_once_or_by_the_operation(clients: ProjectClients) -> None:
    clients.project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"] = 1.0
    clients.insert("one")
    with pytest.raises(Forbidden) as refused:
        clients.insert("two")
    assert refused.value.errors[0]["reason"] == "quotaExceeded"
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS" in str(refused.value)
    clients.project.quota_in_operation = True
    done = clients.wait(clients.insert("two"))
    (error,) = done.error.errors
    assert (error.code, done.http_error_status_code) == ("QUOTA_EXCEEDED", 403)
    assert error.error_details[0].quota_info.limit == 1.0
    clients.wait(clients.delete("one"))
    clients.running("two")


def test_one_that_is_deleted_while_it_is_made_was_never_there(clients: ProjectClients) -> None:
    made = clients.insert("one")
    clients.wait(clients.delete("one"))
    done = clients.operations.get(project=clients.name, zone=ZONE, operation=made.name)
    assert done.error.errors[0].code == "OPERATION_CANCELED_BY_USER"
    clients.clock.advance(60.0)
    assert clients.project.remaining() == []


def system_operations(clients: ProjectClients) -> list[str]:
    request = {"project": clients.name, "zone": ZONE, "filter": "operationType:compute"}
    return [operation.operation_type for operation in clients.operations.list(request=request)]


def test_a_preempted_instance_is_told_stopped_and_gone(clients: ProjectClients) -> None:
    clients.project.subscriptions["notices"] = Subscription("notices")
    clients.running("one")
    lifecycle.preempt(clients.project, "one")
    assert clients.status("one") == "STOPPING"
    assert system_operations(clients) == ["compute.instances.preempted"]
    clients.clock.advance(31.0)
    assert clients.listed() == []
    (message,) = clients.project.subscriptions["notices"].messages
    entry = json.loads(base64.b64decode(message.data))
    assert entry["protoPayload"]["methodName"] == "compute.instances.preempted"
    assert entry["protoPayload"]["resourceName"].endswith(f"/zones/{ZONE}/instances/one")


def test_without_its_own_action_a_preempted_instance_is_stopped(clients: ProjectClients) -> None:
    clients.project.templates["castor-gpu"]["properties"] = properties(
        scheduling={"provisioningModel": "SPOT"}
    )
    clients.running("one")
    lifecycle.preempt(clients.project, "one")
    clients.clock.advance(31.0)
    assert clients.status("one") == "TERMINATED"
    assert clients.project.alive() == []


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_longer_notice_goes_before_the_signal(
    clients: ProjectClients, is_asked_for: bool
) -> None:
    asked = {"preemption_notice_duration": {"seconds": 120}} if is_asked_for else {}
    clients.running("one", scheduling=asked)
    lifecycle.preempt(clients.project, "one", ahead_seconds=None if is_asked_for else 120.0)
    assert clients.status("one") == "RUNNING"
    clients.clock.advance(121.0)
    assert clients.status("one") == "STOPPING"
    clients.clock.advance(30.0)
    with pytest.raises(NotFound):
        clients.status("one")


def test_one_that_has_run_for_as_long_as_it_may_is_deleted(clients: ProjectClients) -> None:
    """Delete an instance at the end of its maximum run time, without a call."""
    clients.project.subscriptions["notices"] = Subscription("notices")
    clients.running("one", scheduling={"max_run_duration": {"seconds": 3600}})
    clients.clock.advance(3590.0)
    assert clients.status("one") == "RUNNING"
    clients.clock.advance(20.0)
    assert clients.project.remaining() == []
    assert system_operations(clients) == ["compute.instances.deferredDelete"]
    assert clients.project.subscriptions["notices"].messages == []  # no sink is laid for it


def test_a_broken_host_is_left_or_the_end(clients: ProjectClients) -> None:
    clients.project.subscriptions["notices"] = Subscription("notices")
    standard = {"provisioningModel": "STANDARD", "onHostMaintenance": "TERMINATE"}
    template = clients.project.templates["castor-gpu"]["properties"]
    template["scheduling"] = standard
    clients.running("one")
    clients.running("two", scheduling={"automatic_restart": False})
    for name in ("one", "two"):
        lifecycle.break_host(clients.project, name)
    assert (clients.status("one"), clients.status("two")) == ("STAGING", "TERMINATED")
    clients.clock.advance(10.0)
    assert clients.status("one") == "RUNNING"
    assert clients.project.alive() == ["one"]
    assert len(clients.project.subscriptions["notices"].messages) == 2


def test_one_that_shuts_down_by_itself_is_not_deleted(clients: ProjectClients) -> None:
    clients.running("one")
    lifecycle.shut_down(clients.project, "one")
    assert clients.status("one") == "TERMINATED"
    assert system_operations(clients) == ["compute.instances.guestTerminate"]
    clients.wait(clients.delete("one"))
    assert clients.project.remaining() == []


@pytest.mark.gcp
def test_one_that_waits_for_capacity_gets_it_or_gives_up(clients: ProjectClients) -> None:
    flexible = {"provisioning_model": "FLEX_START", "max_run_duration": {"seconds": 3600}}
    patient = {"request_valid_for_duration": {"seconds": 300}}
    place = ("g2-standard-4", ZONE, "FLEX_START")
    clients.project.capacity[place] = 0
    made = [clients.insert(name, scheduling=flexible, params=patient) for name in ("a", "b")]
    clients.clock.advance(100.0)
    assert [clients.status(name) for name in ("a", "b")] == ["PENDING"] * 2
    clients.project.capacity[place] = 1
    clients.clock.advance(300.0)
    first, second = (clients.wait(operation) for operation in made)
    assert not first.error.errors
    assert second.error.errors[0].code.startswith("ZONE_RESOURCE_POOL_EXHAUSTED")
    assert clients.project.alive() == ["a"]


def test_an_operation_of_another_zone_is_not_found(clients: ProjectClients) -> None:
    made = clients.insert("one")
    with pytest.raises(NotFound):
        clients.operations.get(project=clients.name, zone="us-central1-b", operation=made.name)


def test_a_name_that_was_taken_again_is_not_lost(clients: ProjectClients) -> None:
    """Delete an instance twice; the second deletion ends after its name was used again."""
    clients.running("one")
    first = clients.delete("one")
    clients.clock.advance(3.0)
    second = clients.delete("one")
    clients.wait(first)
    clients.insert("one")
    clients.wait(second)
    assert clients.project.alive() == ["one"]


def test_what_happened_anywhere_is_listed_at_once(clients: ProjectClients) -> None:
    clients.running("one")
    lifecycle.take(clients.project, "one")
    assert clients.project.remaining() == []
    newest = clients.send("GET", f"zones/{ZONE}/operations", orderBy="creationTimestamp desc")
    assert newest.json()["items"][-1]["operationType"] == "insert"
    by_id = newest.json()["items"][-1]["id"]
    assert clients.send("GET", f"zones/{ZONE}/operations/{by_id}").json()["status"] == "DONE"
    wanted = "operationType=compute.instances.preempted"
    reply = clients.send("GET", "aggregated/operations", filter=wanted).json()
    (preemption,) = reply["items"][f"zones/{ZONE}"]["operations"]
    assert preemption["user"] == "system"
    assert preemption["targetLink"].endswith("/instances/one")


def test_a_wait_may_end_at_once(clients: ProjectClients) -> None:
    clients.project.wait_seconds = 0.0
    made = clients.insert("one")
    assert clients.wait(made).status.name == "PENDING"
    assert clients.clock.now() == START_SECONDS


def test_one_that_is_taken_while_it_boots_ends_its_operation(clients: ProjectClients) -> None:
    made = clients.insert("one")
    clients.clock.advance(3.0)
    lifecycle.take(clients.project, "one")
    assert clients.wait(made).status.name == "DONE"
    assert clients.project.remaining() == []


def test_a_wait_ends_after_two_minutes(clients: ProjectClients) -> None:
    clients.project.provision_seconds = 1000.0
    made = clients.insert("one")
    begun_seconds = clients.clock.now()
    assert clients.wait(made).status.name == "RUNNING"
    assert 119.0 < clients.clock.now() - begun_seconds < 125.0
