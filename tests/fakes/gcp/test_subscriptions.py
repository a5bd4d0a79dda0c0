"""Subscriptions: delivered until acknowledged, by REST."""

from __future__ import annotations

import base64
from typing import Any

import httpx

from tests.fakes.faults import Fault
from tests.fakes.gcp.ground import HTTP, Ground
from tests.fakes.gcp.subscriptions import publish


def call(ground: Ground, verb: str = "", body: Any = None, method: str = "POST") -> httpx.Response:
    name = f"projects/{ground.name}/subscriptions/notices"
    return HTTP.request(method, f"{ground.fake.url}/v1/{name}{verb}", json=body)


def pulled(ground: Ground) -> list[tuple[str, str]]:
    reply = call(ground, ":pull", {"maxMessages": 10}).json()
    return [
        (one["ackId"], base64.b64decode(one["message"]["data"]).decode())
        for one in reply.get("receivedMessages", [])
    ]


def test_a_message_comes_again_until_it_is_acknowledged(ground: Ground) -> None:
    topic = f"projects/{ground.name}/topics/any"
    assert call(ground, body={"topic": topic, "ackDeadlineSeconds": 20}, method="PUT").is_success
    publish(ground.project, "notices", "one")
    ((first, text),) = pulled(ground)
    assert text == "one"
    assert pulled(ground) == []
    ground.clock.advance(21.0)
    ((second, _),) = pulled(ground)
    call(ground, ":acknowledge", {"ackIds": [first]})
    call(ground, ":modifyAckDeadline", {"ackIds": [second], "ackDeadlineSeconds": 0})
    ((third, _),) = pulled(ground)
    call(ground, ":acknowledge", {"ackIds": [third]})
    ground.clock.advance(60.0)
    assert pulled(ground) == []


def test_calls_of_a_subscription_fail_as_others_do(ground: Ground) -> None:
    assert call(ground, ":pull", {"maxMessages": 1}).status_code == 404
    call(ground, body={"topic": "projects/p/topics/t"}, method="PUT")
    assert call(ground, method="GET").json()["ackDeadlineSeconds"] == 10
    assert call(ground, body={"topic": "projects/p/topics/t"}, method="PUT").status_code == 409
    assert call(ground, ":pull", {"maxMessages": 0}).status_code == 400
    assert call(ground, ":pull", {"maxMessage": 1}).status_code == 400
    ground.project.faults.add(Fault("pubsub.projects.subscriptions.pull", status=503))
    assert call(ground, ":pull", {"maxMessages": 1}).status_code == 503
    assert call(ground, ":pull", {"maxMessages": 1}).status_code == 200
