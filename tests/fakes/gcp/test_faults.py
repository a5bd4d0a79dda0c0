"""Faults that a test orders: each is met once, and is what it says."""

from __future__ import annotations

import httpx
import pytest
from google.api_core.exceptions import ServiceUnavailable, TooManyRequests

from tests.fakes.faults import Fault, When
from tests.fakes.gcp.front import CLOUD_TOKEN
from tests.fakes.gcp.ground import HTTP, ZONE, Ground, instance, request_id

INSERT = "compute.instances.insert"
LIST = "compute.instances.list"
WHERE = f"zones/{ZONE}/instances"


def insert(ground: Ground, **query: str) -> httpx.Response:
    return ground.send("POST", WHERE, instance("one"), **query)


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_a_refusal_carries_nothing_out(ground: Ground, status: int) -> None:
    ground.project.faults.add(Fault(INSERT, code="rateLimitExceeded", status=status))
    reply = insert(ground)
    assert reply.status_code == status
    assert reply.json()["error"]["errors"][0]["reason"] == "rateLimitExceeded"
    assert ground.project.alive() == []
    assert insert(ground).status_code == 200


def test_googles_client_knows_refusals_by_their_type(ground: Ground) -> None:
    ground.project.faults.add(
        Fault(INSERT, code="rateLimitExceeded", status=429), Fault(INSERT, status=503)
    )
    with pytest.raises(TooManyRequests):
        ground.insert("one")
    with pytest.raises(ServiceUnavailable):
        ground.insert("one")


@pytest.mark.parametrize(("when", "is_made"), [(When.LOST_BEFORE, False), (When.LOST_AFTER, True)])
def test_a_connection_breaks_before_or_after(ground: Ground, when: When, is_made: bool) -> None:
    ground.project.faults.add(Fault(INSERT, when))
    same = request_id()
    with pytest.raises(httpx.TransportError):
        insert(ground, requestId=same)
    assert bool(ground.project.alive()) is is_made
    assert insert(ground, requestId=same).status_code == 200
    assert len(ground.project.history) == 1


@pytest.mark.parametrize(("when", "expected"), [(When.EMPTY, "{}"), (When.MALFORMED, '{"kind"')])
def test_a_reply_is_empty_or_cut_short(ground: Ground, when: When, expected: str) -> None:
    ground.project.faults.add(Fault(INSERT, when))
    reply = insert(ground)
    assert reply.text.startswith(expected)
    assert not reply.text.endswith("}") or when is When.EMPTY
    assert ground.project.alive() == ["one"]


@pytest.mark.parametrize("code", ["ZONE_RESOURCE_POOL_EXHAUSTED", "QUOTA_EXCEEDED", "INTERNAL"])
def test_an_operation_fails_as_it_is_told_to(ground: Ground, code: str) -> None:
    ground.project.faults.add(Fault(INSERT, When.IN_REPLY, code=code))
    done = ground.wait(ground.insert("one"))
    assert [error.code for error in done.error.errors] == [code]
    assert ground.project.remaining() == []


def test_a_fault_may_be_of_some_calls_only(ground: Ground) -> None:
    ground.project.faults.add(Fault(LIST, matching={"zone": "us-central1-b"}, times=None))
    assert ground.send("GET", WHERE).status_code == 200
    for _ in range(3):
        assert ground.send("GET", "zones/us-central1-b/instances").status_code == 500
    ground.project.faults.clear()
    assert ground.send("GET", "zones/us-central1-b/instances").status_code == 200


def test_the_cloud_itself_meets_none_and_is_not_counted(ground: Ground) -> None:
    ground.project.faults.add(Fault(LIST))
    url = f"{ground.fake.url}/compute/v1/projects/{ground.name}/{WHERE}"
    reply = HTTP.get(url, headers={"Authorization": f"Bearer {CLOUD_TOKEN}"})
    assert reply.status_code == 200
    assert ground.project.calls[LIST] == 0
    assert ground.send("GET", WHERE).status_code == 500
    assert ground.project.calls[LIST] == 1
