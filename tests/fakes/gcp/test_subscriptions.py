"""Subscriptions by REST: messages are delivered until they are acknowledged."""

from __future__ import annotations

import base64
from typing import Any

import httpx

from tests.fakes.faults import Fault
from tests.fakes.gcp.clients import HTTP, ProjectClients
from tests.fakes.gcp.subscriptions import publish


def call(
    clients: ProjectClients, verb: str = "", body: Any = None, method: str = "POST"
) -> httpx.Response:
    name = f"projects/{clients.name}/subscriptions/notices"
    return HTTP.request(method, f"{clients.fake.url}/v1/{name}{verb}", json=body)


def pulled(clients: ProjectClients) -> list[tuple[str, str]]:
    reply = call(clients, ":pull", {"maxMessages": 10}).json()
    return [
        (message["ackId"], base64.b64decode(message["message"]["data"]).decode())
        for message in reply.get("receivedMessages", [])
    ]


def test_a_message_comes_again_until_it_is_acknowledged(clients: ProjectClients) -> None:
    topic = f"projects/{clients.name}/topics/any"
    assert call(clients, body={"topic": topic, "ackDeadlineSeconds": 20}, method="PUT").is_success
    publish(clients.project, "notices", "one")
    ((first, text),) = pulled(clients)
    assert text == "one"
    assert pulled(clients) == []
    clients.clock.advance(21.0)
    ((second, _),) = pulled(clients)
    call(clients, ":acknowledge", {"ackIds": [first]})
    call(clients, ":modifyAckDeadline", {"ackIds": [second], "ackDeadlineSeconds": 0})
    ((third, _),) = pulled(clients)
    call(clients, ":acknowledge", {"ackIds": [third]})
    clients.clock.advance(60.0)
    assert pulled(clients) == []


def test_calls_of_a_subscription_fail_as_others_do(clients: ProjectClients) -> None:
    assert call(clients, ":pull", {"maxMessages": 1}).status_code == 404
    call(clients, body={"topic": "projects/p/topics/t"}, method="PUT")
    assert call(clients, method="GET").json()["ackDeadlineSeconds"] == 10
    assert call(clients, body={"topic": "projects/p/topics/t"}, method="PUT").status_code == 409
    assert call(clients, ":pull", {"maxMessages": 0}).status_code == 400
    assert call(clients, ":pull", {"maxMessage": 1}).status_code == 400
    clients.project.faults.add(Fault("pubsub.projects.subscriptions.pull", status=503))
    assert call(clients, ":pull", {"maxMessages": 1}).status_code == 503
    assert call(clients, ":pull", {"maxMessages": 1}).status_code == 200
