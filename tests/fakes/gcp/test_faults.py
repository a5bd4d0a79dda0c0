"""Faults that a test injects: each occurs once, in its own way."""

from __future__ import annotations

import httpx
import pytest
from google.api_core.exceptions import ServiceUnavailable, TooManyRequests

from tests.fakes.faults import Fault, When
from tests.fakes.gcp.clients import HTTP, ZONE, ProjectClients, instance, request_id
from tests.fakes.gcp.front import CLOUD_TOKEN

INSERT = "compute.instances.insert"
LIST = "compute.instances.list"
WHERE = f"zones/{ZONE}/instances"


def insert(clients: ProjectClients, **query: str) -> httpx.Response:
    return clients.send("POST", WHERE, instance("one"), **query)


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_a_refusal_carries_nothing_out(clients: ProjectClients, status: int) -> None:
    clients.project.faults.add(Fault(INSERT, code="rateLimitExceeded", status=status))
    reply = insert(clients)
    assert reply.status_code == status
    assert reply.json()["error"]["errors"][0]["reason"] == "rateLimitExceeded"
    assert clients.project.alive() == []
    assert insert(clients).status_code == 200


def test_googles_client_knows_refusals_by_their_type(clients: ProjectClients) -> None:
    clients.project.faults.add(
        Fault(INSERT, code="rateLimitExceeded", status=429), Fault(INSERT, status=503)
    )
    with pytest.raises(TooManyRequests):
        clients.insert("one")
    with pytest.raises(ServiceUnavailable):
        clients.insert("one")


@pytest.mark.parametrize(("when", "is_made"), [(When.LOST_BEFORE, False), (When.LOST_AFTER, True)])
def test_a_connection_breaks_before_or_after(
    clients: ProjectClients, when: When, is_made: bool
) -> None:
    clients.project.faults.add(Fault(INSERT, when))
    same = request_id()
    with pytest.raises(httpx.TransportError):
        insert(clients, requestId=same)
    assert bool(clients.project.alive()) is is_made
    assert insert(clients, requestId=same).status_code == 200
    assert len(clients.project.history) == 1


@pytest.mark.parametrize(("when", "expected"), [(When.EMPTY, "{}"), (When.MALFORMED, '{"kind"')])
def test_a_reply_is_empty_or_cut_short(clients: ProjectClients, when: When, expected: str) -> None:
    clients.project.faults.add(Fault(INSERT, when))
    reply = insert(clients)
    assert reply.text.startswith(expected)
    assert not reply.text.endswith("}") or when is When.EMPTY
    assert clients.project.alive() == ["one"]


@pytest.mark.parametrize("code", ["ZONE_RESOURCE_POOL_EXHAUSTED", "QUOTA_EXCEEDED", "INTERNAL"])
def test_an_operation_fails_as_it_is_told_to(clients: ProjectClients, code: str) -> None:
    clients.project.faults.add(Fault(INSERT, When.IN_REPLY, code=code))
    done = clients.wait(clients.insert("one"))
    assert [error.code for error in done.error.errors] == [code]
    assert clients.project.remaining() == []


def test_a_fault_may_be_of_some_calls_only(clients: ProjectClients) -> None:
    clients.project.faults.add(Fault(LIST, matching={"zone": "us-central1-b"}, times=None))
    assert clients.send("GET", WHERE).status_code == 200
    for _ in range(3):
        assert clients.send("GET", "zones/us-central1-b/instances").status_code == 500
    clients.project.faults.clear()
    assert clients.send("GET", "zones/us-central1-b/instances").status_code == 200


def test_the_cloud_itself_meets_none_and_is_not_counted(clients: ProjectClients) -> None:
    clients.project.faults.add(Fault(LIST))
    url = f"{clients.fake.url}/compute/v1/projects/{clients.name}/{WHERE}"
    reply = HTTP.get(url, headers={"Authorization": f"Bearer {CLOUD_TOKEN}"})
    assert reply.status_code == 200
    assert clients.project.calls[LIST] == 0
    assert clients.send("GET", WHERE).status_code == 500
    assert clients.project.calls[LIST] == 1
