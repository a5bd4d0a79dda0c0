"""Refusals as by Compute Engine: misspelt, malformed, missing or impossible values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.gcp.clients import TEMPLATE, ZONE, ProjectClients, instance, properties
from tests.fakes.gcp.discovery import api

WHERE = f"zones/{ZONE}/instances"
SPOT = {"provisioningModel": "SPOT"}
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a field that there is not": ({"machinetype": "x"}, 'Unknown name "machinetype"'),
    "a field that there is not, further in": (
        {"scheduling": {"provisioningModle": "SPOT"}},
        "at 'resource.scheduling'",
    ),
    "a word that is none of the enum": (
        {"scheduling": {"provisioningModel": "CHEAP"}},
        "It must be one of FLEX_START",
    ),
    "a text for a list": ({"disks": "boot"}, "Invalid value at 'resource.disks'"),
    "a text for a number": ({"disks": [{"index": "first"}]}, "whole number"),
    "a name that can't be": ({"name": "One"}, "Must be a match of regex"),
    "no name": ({"name": None}, "Required field 'resource.name'"),
    "a bare machine type": ({"machineType": "g2-standard-4"}, "The URL is malformed"),
    "a machine type of another zone": (
        {"machineType": "zones/us-central1-b/machineTypes/g2-standard-4"},
        "not in zone",
    ),
    "a machine type that there is not": (
        {"machineType": f"zones/{ZONE}/machineTypes/g9-standard-4"},
        "does not exist in zone",
    ),
    "no disk": ({"disks": []}, "Exactly one boot disk"),
    "no network": ({"networkInterfaces": []}, "resource.networkInterfaces"),
    "a spot VM that restarts": (
        {"scheduling": {**SPOT, "automaticRestart": True}},
        "automaticRestart be false",
    ),
    "a GPU that is migrated": (
        {"scheduling": {"provisioningModel": "STANDARD"}},
        "do not support live migration",
    ),
    "a run that is too short": (
        {"scheduling": {**SPOT, "maxRunDuration": {"seconds": "5"}}},
        "from 30 to",
    ),
    "a notice that is too long": (
        {"scheduling": {**SPOT, "preemptionNoticeDuration": {"seconds": "121"}}},
        "from 0 to 120",
    ),
    "a label in capitals": ({"labels": {"castor-job": "Digits"}}, "format constraints"),
    "a label with a slash": ({"labels": {"castor/job": "digits"}}, "format constraints"),
    "a label that is too long": ({"labels": {"castor-job": "x" * 64}}, "format constraints"),
    "metadata twice": (
        {"metadata": {"items": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}},
        "duplicate key",
    ),
    "metadata that are too long": (
        {"metadata": {"items": [{"key": "a", "value": "x" * 262_145}]}},
        "too large",
    ),
    "an accelerator that does not fit": (
        {"guestAccelerators": [{"acceleratorType": "x/nvidia-l4", "acceleratorCount": 2}]},
        "not compatible",
    ),
    "a policy that there is not": (
        {"resourcePolicies": ["regions/us-central1/resourcePolicies/none"]},
        "was not found",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_body_with_a_mistake_makes_nothing(clients: ProjectClients, mistake: str) -> None:
    change, expected = MISTAKES[mistake]
    reply = clients.send("POST", WHERE, instance("one") | change)
    error = reply.json()["error"]
    assert reply.status_code == error["code"]
    assert reply.status_code in (400, 404)
    assert expected in error["message"]
    assert error["errors"][0]["message"] == error["message"]
    assert error["errors"][0]["reason"]
    assert clients.project.history == []


def test_the_same_without_a_mistake_is_made(clients: ProjectClients) -> None:
    assert clients.send("POST", WHERE, instance("one")).status_code == 200
    assert clients.project.alive() == ["one"]


def test_a_parameter_that_there_is_not_is_refused(clients: ProjectClients) -> None:
    reply = clients.send("POST", WHERE, instance("one"), requestID="x")
    assert 'Unknown name "requestID"' in reply.json()["error"]["message"]
    reply = clients.send("POST", WHERE, instance("one"), returnPartialSuccess="true")
    assert 'Unknown name "returnPartialSuccess"' in reply.json()["error"]["message"]
    assert clients.send("GET", WHERE, maxResults="501").status_code == 400
    assert clients.send("GET", WHERE, maxResults="many").status_code == 400
    assert clients.send("GET", WHERE, pageToken="x").status_code == 400
    assert clients.send("GET", WHERE, orderBy="status").status_code == 400


@pytest.mark.parametrize(
    ("link", "status"),
    [
        (TEMPLATE, 400),
        (f"instanceTemplates/{TEMPLATE}", 400),
        ("global/instanceTemplates/none", 404),
        (f"projects/other/global/instanceTemplates/{TEMPLATE}", 404),
        (f"global/instanceTemplates/{TEMPLATE}", 200),
        (f"https://www.googleapis.com/compute/v1/global/instanceTemplates/{TEMPLATE}", 200),
    ],
)
def test_a_template_is_named_by_a_link(clients: ProjectClients, link: str, status: int) -> None:
    reply = clients.send("POST", WHERE, {"name": "one"}, sourceInstanceTemplate=link)
    assert reply.status_code == status


def test_a_zone_that_there_is_not_is_refused(clients: ProjectClients) -> None:
    reply = clients.send("GET", "zones/us-central1-z/instances")
    assert (reply.status_code, reply.json()["error"]["errors"][0]["reason"]) == (400, "invalid")


def test_nothing_is_hidden_by_what_the_fake_does_not_do(clients: ProjectClients) -> None:
    """Refuse `fields`, with which the real API omits other fields and the page token."""
    assert clients.send("GET", WHERE, fields="items/name").status_code == 501


def test_a_field_of_nothing_is_as_none(clients: ProjectClients) -> None:
    body = instance("one", labels=None, metadata=None, guestAccelerators=None)
    assert clients.send("POST", WHERE, body).status_code == 200
    clients.clock.advance(10.0)
    assert clients.status("one") == "RUNNING"


def test_the_fake_can_not_misspell_either() -> None:
    compute = api("compute.v1")
    match = compute.find("GET", f"/compute/v1/projects/mine/{WHERE}")
    assert match is not None
    with pytest.raises(AssertionError, match="nextPagetoken"):
        compute.check_response(match[0], {"items": [], "nextPagetoken": "x"})


def test_what_is_no_json_is_refused(clients: ProjectClients) -> None:
    bodies: tuple[Any, ...] = ("", [], "text", 3)
    for body in bodies:
        assert clients.send("POST", WHERE, body).status_code == 400


def test_a_method_that_the_fake_does_not_do_says_so(clients: ProjectClients) -> None:
    reply = clients.send("GET", "global/firewalls")
    assert reply.status_code == 501
    assert "compute.firewalls.list" in reply.text


def test_a_path_that_there_is_not_is_not_found(clients: ProjectClients) -> None:
    assert clients.send("PUT", "zones/x/nothing/of/the/kind").status_code == 404


@pytest.mark.parametrize(
    "wanted",
    ["labels", "labels.a=", "name=a AND", "(name=a", "name=a)", "name ~ a", "name='a", "a eq b"],
)
def test_a_filter_that_is_none_is_refused(clients: ProjectClients, wanted: str) -> None:
    reply = clients.send("GET", WHERE, filter=wanted)
    assert reply.status_code == 400
    assert "Invalid list filter expression" in reply.text


def test_regular_expressions_do_not_mix(clients: ProjectClients) -> None:
    reply = clients.send("GET", WHERE, filter="name eq a.* AND status=RUNNING")
    assert "can't stand beside" in reply.text


def test_a_template_is_checked_when_it_is_laid(clients: ProjectClients) -> None:
    path = "global/instanceTemplates"
    bare = {"name": "t", "properties": properties(machineType=None)}
    assert "machineType" in clients.send("POST", path, bare).text
    whole = {"name": "t", "properties": properties()}
    assert clients.send("POST", path, whole).json()["status"] == "DONE"
    assert clients.send("POST", path, whole).status_code == 409
    assert clients.send("GET", f"{path}/t").json()["properties"]["machineType"] == "g2-standard-4"
    assert clients.send("DELETE", f"{path}/t").status_code == 200
    assert clients.send("GET", f"{path}/t").status_code == 404
