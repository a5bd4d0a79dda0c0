"""Launches: what is sent, what comes of it, and what keeps an order from being bought twice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from autoscaler.domain.instance import CONTROLLER_TAG, CloudState
from providers.gcp.calls import ProjectCalls
from providers.gcp.records import Records
from providers.gcp.replies import label_value
from tests.conformance.provider import OURS, THEIRS, find
from tests.fakes.faults import Fault, When
from tests.fakes.gcp import lifecycle
from tests.providers.gcp.cloud import QUICK, SMALL_SPOT, GcpWorld, error_of, name_of

INSERT = "compute.instances.insert"
OPERATIONS = "compute.zoneOperations.list"


def test_what_is_sent_is_the_template_with_a_name_a_type_and_whose_it_is(world: GcpWorld) -> None:
    world.document["labels"] = {"team": "vision"}
    launched = world.connect().launch(world.request("1", SMALL_SPOT))
    (sent,) = world.project.of(INSERT)
    assert sent.parameters["sourceInstanceTemplate"].endswith("/castor-gpu-spot")
    assert set(sent.body) == {"name", "description", "machineType", "labels"}
    assert sent.body["machineType"] == "zones/us-central1-a/machineTypes/g2-standard-4"
    assert sent.body["labels"]["castor-controller"] == OURS
    assert sent.body["labels"]["castor-offer"] == label_value(SMALL_SPOT) != SMALL_SPOT
    assert sent.body["labels"]["team"] == "vision"
    assert json.loads(sent.body["description"])["castor:offer"] == SMALL_SPOT
    assert launched.id == f"us-central1-a/{sent.body['name']}"
    assert sent.body["name"].startswith("castor-test-")
    assert world.start_data(launched.id) == "join 1"
    assert world.project.instance(sent.body["name"]).purchase == "SPOT"


def test_what_an_instance_finds_is_there_before_it(world: GcpWorld) -> None:
    """Launch nothing without start data, because the instance could not join."""
    world.faults.add(Fault("storage.objects.insert", code="backendError", status=503))
    assert isinstance(error_of(lambda: world.connect().launch(world.request("1"))), Unavailable)
    assert world.project.calls[INSERT] == 0


@pytest.mark.parametrize("code", ["ZONE_RESOURCE_POOL_EXHAUSTED", "STOCKOUT"])
def test_a_stockout_comes_seconds_later(world: GcpWorld, code: str) -> None:
    provider = world.connect()
    world.faults.add(Fault(INSERT, When.IN_REPLY, code=code))
    error = error_of(lambda: provider.launch(world.request("1")))
    assert isinstance(error, InsufficientCapacity)
    assert "us-central1-a: instances.insert" in str(error)
    assert list(provider.instances()) == [] and world.project.remaining() == []


def test_the_next_try_of_a_refused_order_is_another_request(world: GcpWorld) -> None:
    """Compute Engine would repeat its answer to the same one for an hour."""
    provider = world.connect()
    world.faults.add(Fault(INSERT, When.IN_REPLY, code="ZONE_RESOURCE_POOL_EXHAUSTED"))
    error_of(lambda: provider.launch(world.request("1")))
    provider.launch(world.request("1"))
    first, second = (sent.parameters["requestId"] for sent in world.project.of(INSERT))
    assert first != second
    assert len(world.alive()) == 1


def test_a_lost_reply_is_found_out_about_by_the_same_request(world: GcpWorld) -> None:
    provider = world.connect()
    world.faults.add(Fault(INSERT, When.LOST_AFTER))
    assert isinstance(error_of(lambda: provider.launch(world.request("1"))), Unavailable)
    provider.launch(world.request("1"))
    first, second = (sent.parameters["requestId"] for sent in world.project.of(INSERT))
    assert first == second
    assert len(world.project.history) == 1


def test_a_launch_without_a_reply_may_end_before_a_list_shows_it(world: GcpWorld) -> None:
    provider = world.connect()
    world.project.lag_seconds = QUICK.visible_seconds - 5.0
    world.faults.add(Fault(INSERT, When.LOST_AFTER, times=1))
    request = world.request("1", SMALL_SPOT)
    launched_seconds = world.clock.now()
    assert isinstance(error_of(lambda: provider.launch(request)), Unavailable)
    world.pass_time(10.0)
    (name,) = world.project.remaining()
    lifecycle.take(world.project, name)
    world.pass_time(20.0)
    world.faults.add(Fault(OPERATIONS, code="backendError", status=503, times=1))
    assert list(provider.instances()) == [], "the operations can't be listed"
    (ended,) = provider.instances()
    assert (ended.state, ended.token, ended.offer) == (CloudState.TERMINATED, "1", SMALL_SPOT)
    assert ended.launched_seconds == pytest.approx(launched_seconds, abs=5.0)
    assert ended.ended_seconds == world.clock.now()  # within 30 s of the preemption
    assert provider.launch(request) == ended
    assert list(provider.instances()) == [ended]


@pytest.mark.parametrize("ends_within_call", [True, False])
def test_the_next_controller_looks_a_launch_without_a_reply_up(
    world: GcpWorld, ends_within_call: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = world.connect()
    world.project.lag_seconds = QUICK.visible_seconds - 5.0
    request = world.request("1", SMALL_SPOT)
    launched_seconds = world.clock.now()
    if ends_within_call:
        insert = ProjectCalls.insert

        def insert_and_end(*arguments: Any, **parameters: Any) -> None:
            insert(*arguments, **parameters)
            raise KeyboardInterrupt

        monkeypatch.setattr(ProjectCalls, "insert", insert_and_end)
        with pytest.raises(KeyboardInterrupt):
            provider.launch(request)
    else:
        world.faults.add(Fault(INSERT, When.LOST_AFTER, times=1))
        assert isinstance(error_of(lambda: provider.launch(request)), Unavailable)
    world.pass_time(10.0)
    (name,) = world.project.remaining()
    lifecycle.take(world.project, name)
    world.pass_time(QUICK.visible_seconds)
    (ended,) = world.connect().instances()
    assert (ended.state, ended.token, ended.offer) == (CloudState.TERMINATED, "1", SMALL_SPOT)
    assert ended.launched_seconds == pytest.approx(launched_seconds, abs=5.0)
    assert Records(world.kept, OURS).launches() == [], "it is looked up once"


def test_the_next_controller_finds_the_end_of_a_launch_that_no_list_has_shown(
    world: GcpWorld,
) -> None:
    provider = world.connect()
    world.project.lag_seconds = QUICK.visible_seconds - 5.0
    launched = provider.launch(world.request("1", SMALL_SPOT))
    assert Records(world.kept, OURS).launches() == []
    world.pass_time(10.0)
    world.take(launched.id)
    world.pass_time(QUICK.visible_seconds)
    ended = find(world.connect(), launched.id)
    assert (ended.state, ended.launched_seconds) == (
        CloudState.TERMINATED,
        launched.launched_seconds,
    )
    assert ended.ended_seconds is not None and ended.ended_seconds <= world.clock.now()


def test_a_launch_that_was_never_received_is_no_instance(world: GcpWorld) -> None:
    provider = world.connect()
    world.faults.add(Fault(INSERT, When.LOST_BEFORE, times=1))
    request = world.request("1", SMALL_SPOT)
    assert isinstance(error_of(lambda: provider.launch(request)), Unavailable)
    world.pass_time(QUICK.visible_seconds)
    assert list(provider.instances()) == []
    world.project.calls.clear()
    assert list(provider.instances()) == []
    assert world.project.calls[OPERATIONS] == 0, "it is looked up once"
    launched = provider.launch(request)
    assert [instance.id for instance in provider.instances()] == [launched.id]


def test_a_name_that_is_taken_is_ours_if_its_labels_say_so(world: GcpWorld) -> None:
    """Request ids are forgotten; names are not."""
    provider = world.connect()
    world.project.request_seconds = 0.0
    world.faults.add(Fault(INSERT, When.LOST_AFTER))
    error_of(lambda: provider.launch(world.request("1")))
    launched = provider.launch(world.request("1"))
    assert launched.id in world.alive()
    assert len(world.project.history) == 1


def test_settings_that_change_between_two_tries_launch_nothing_twice(world: GcpWorld) -> None:
    world.faults.add(Fault(INSERT, When.LOST_AFTER))
    error_of(lambda: world.connect().launch(world.request("1")))
    world.document["labels"] = {"team": "other"}
    world.connect().launch(world.request("1"))
    assert len(world.project.history) == 1


def test_a_role_that_lacks_something_is_told_in_the_same_words_each_time(world: GcpWorld) -> None:
    """Leave out the request's id, so that equal refusals have equal texts."""
    world.faults.add(Fault(INSERT, code="forbidden", status=403, times=2))
    provider = world.connect()
    errors = [error_of(lambda slot=slot: provider.launch(world.request(slot))) for slot in "12"]
    assert all(isinstance(error, PermissionDenied) for error in errors)
    assert str(errors[0]) == str(errors[1])
    assert "forbidden: injected: allow instances.insert" in str(errors[0])


def test_a_name_that_somebody_else_has_is_not_ours(world: GcpWorld) -> None:
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    held = world.project.instance(name_of(launched.id))
    held.body["labels"]["castor-controller"] = "somebody"
    world.project.request_seconds = 0.0
    world.kept.unlink()
    error = error_of(lambda: world.connect().launch(world.request("1")))
    assert isinstance(error, PermissionDenied)
    assert "belongs to another deployment" in str(error)


def test_a_quota_is_told_at_once_or_later(world: GcpWorld) -> None:
    for metric in ("NVIDIA_L4_GPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS"):
        world.project.quotas["us-central1", metric] = 0.0
    provider = world.connect()
    error = error_of(lambda: provider.launch(world.request("1")))
    assert isinstance(error, QuotaExceeded)
    assert "NVIDIA_L4_GPUS" in str(error) and "Quotas" in str(error)
    world.project.quota_in_operation = True
    assert isinstance(error_of(lambda: provider.launch(world.request("2"))), QuotaExceeded)


def test_a_launch_that_takes_long_is_pending_and_then_what_came_of_it(world: GcpWorld) -> None:
    world.project.provision_seconds = 20.0
    provider = world.connect()
    good, bad = (provider.launch(world.request(token)) for token in ("1", "2"))
    assert (good.state, bad.state) == (CloudState.PENDING, CloudState.PENDING)
    world.project.capacity["g2-standard-4", "us-central1-a", "STANDARD"] = 1
    world.pass_time(60.0)
    states = {one.id: one.state for one in provider.instances()}
    assert states == {good.id: CloudState.RUNNING, bad.id: CloudState.TERMINATED}
    for known in (provider, world.connect()):
        refused = find(known, bad.id)
        assert refused is not None and refused.launched_seconds is None
        assert isinstance(refused.refusal, InsufficientCapacity)


def test_a_zone_that_has_capacity_is_named(world: GcpWorld) -> None:
    """Name it at the launch, and in the list that shows the refusal later."""
    world.project.provision_seconds = 20.0
    provider = world.connect()
    late = provider.launch(world.request("1"))
    for zone, count in (("us-central1-a", 0), ("us-central1-b", 3)):
        world.project.capacity["g2-standard-4", zone, "STANDARD"] = count
    world.pass_time(60.0)
    world.project.provision_seconds = 1.0
    found = find(provider, late.id)
    assert found is not None
    for error in (found.refusal, error_of(lambda: provider.launch(world.request("2")))):
        assert isinstance(error, InsufficientCapacity)
        assert str(error).endswith(": Google has capacity in us-central1-b")
        assert error.open_zones == {"us-central1-b"}


def test_a_launch_that_is_done_is_not_waited_for(world: GcpWorld) -> None:
    """Its operation says so, although the instance can't be read."""
    world.project.provision_seconds = world.project.staging_seconds = 0.5
    world.faults.add(Fault("compute.instances.get", times=None, status=503))
    before_seconds = world.clock.now()
    launched = world.connect().launch(world.request("1"))
    assert launched.is_decided
    assert world.clock.now() - before_seconds < QUICK.launch_seconds


@pytest.mark.parametrize("status", ["PENDING", "PROVISIONING"])
def test_before_it_is_staged_a_launch_may_be_refused(world: GcpWorld, status: str) -> None:
    launched = world.connect(patience=replace(QUICK, launch_seconds=0.0)).launch(
        world.request("1")
    )
    world.project.instance(name_of(launched.id)).status = status
    (found,) = world.connect().instances()
    assert (found.state, found.is_decided) == (CloudState.PENDING, False)


def test_without_its_operation_a_launch_is_known_by_lists(world: GcpWorld) -> None:
    world.faults.add(Fault("compute.zoneOperations.get", times=None, status=503))
    provider = world.connect()
    launched = provider.launch(world.request("1"))
    world.pass_time(10.0)
    found = find(provider, launched.id)
    assert found is not None and found.state is CloudState.RUNNING


def test_a_template_that_is_gone_is_named(world: GcpWorld) -> None:
    provider = world.connect()
    provider.offers()
    world.project.templates.clear()
    error = error_of(lambda: provider.launch(world.request("1")))
    assert isinstance(error, NotFound)
    assert "correct pools.gpu.templates, or apply Terraform again" in str(error)


def test_the_caps_hold_what_is_on_its_way(world: GcpWorld) -> None:
    world.document["pools"]["gpu"]["max_instances"] = 1
    provider = world.connect()
    world.faults.add(Fault(INSERT, When.LOST_AFTER))
    error_of(lambda: provider.launch(world.request("1")))
    error = error_of(lambda: provider.launch(world.request("2")))
    assert str(error).startswith("pools.gpu.max_instances: 1 of 1 instances are running")


def test_so_many_launches_a_minute(world: GcpWorld) -> None:
    world.document["launches_per_minute"] = 1
    provider = world.connect(patience=replace(QUICK, launch_seconds=0.0))
    provider.launch(world.request("1"))
    assert isinstance(error_of(lambda: provider.launch(world.request("2"))), Throttled)


def test_tags_of_another_deployment_are_refused(world: GcpWorld) -> None:
    provider = world.connect()
    error = error_of(lambda: provider.launch(world.request("1", controller=THEIRS)))
    assert str(error) == f"tags: {CONTROLLER_TAG} must be {OURS}"


def test_a_controller_whose_id_fits_no_label_finds_its_own(world: GcpWorld) -> None:
    controller = "Team A / Deployment"
    launched = world.connect(controller).launch(world.request("1", controller=controller))
    world.kept.unlink()
    (found,) = world.connect(controller).instances()
    assert (found.id, found.tags[CONTROLLER_TAG]) == (launched.id, controller)
    assert lifecycle.accelerators_of(world.project.instance(name_of(found.id)))
