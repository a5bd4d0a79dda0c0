"""Pub/Sub: subscriptions of a sink that what is logged of instances goes to."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Final

from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import Refusal
from tests.fakes.gcp.project import Body, Instance, Project, written_in_utc

_MOST: Final = 1000
# The events for which terraform/modules/gcp lays a sink.
SUNK: Final = tuple(
    f"compute.instances.{event}"
    for event in ("preempted", "terminateOnHostMaintenance", "hostError", "guestTerminate")
)


@dataclass(slots=True)
class Message:
    """One message. `due_seconds` is when it may be delivered, `tries` how often it was."""

    id: str
    data: str
    published_seconds: float
    due_seconds: float
    tries: int = 0
    ack: str = ""


@dataclass(slots=True)
class Subscription:
    """What is not acknowledged is delivered again after `deadline_seconds`."""

    name: str
    deadline_seconds: float = 10.0
    messages: list[Message] = field(default_factory=list)


def log(project: Project, instance: Instance, kind: str, seconds: float) -> None:
    """The audit log's entry of a system event, to all subscriptions, as the sink lets it."""
    if kind not in SUNK:
        return
    moment = written_in_utc(seconds)
    entry = {
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "status": {"message": "Instance was preempted."} if "preempted" in kind else {},
            "authenticationInfo": {"principalEmail": "system@google.com"},
            "serviceName": "compute.googleapis.com",
            "methodName": kind,
            "resourceName": f"projects/{project.id}/zones/{instance.zone}"
            f"/instances/{instance.name}",
            "request": {"@type": f"type.googleapis.com/{kind}"},
        },
        "insertId": f"-{project.next_number():x}",
        "resource": {
            "type": "gce_instance",
            "labels": {
                "instance_id": instance.id,
                "project_id": project.id,
                "zone": instance.zone,
            },
        },
        "timestamp": moment,
        "severity": "INFO",
        "logName": f"projects/{project.id}/logs/cloudaudit.googleapis.com%2Fsystem_event",
        "operation": {
            "id": f"systemevent-{project.next_number()}",
            "producer": kind,
            "first": True,
            "last": True,
        },
        "receiveTimestamp": moment,
    }
    for name in project.subscriptions:
        publish(project, name, json.dumps(entry))


def publish(project: Project, name: str, text: str) -> None:
    """Put a message into a subscription, as a topic would."""
    with project.lock:
        now = project.clock.now()
        data = base64.b64encode(text.encode()).decode()
        message = Message(str(project.next_number()), data, now, now)
        project.subscriptions[name].messages.append(message)


def create(call: Call) -> Body:
    """Of any topic: there is one log that all of them are fed by."""
    name = call.parameters["name"].rpartition("/")[2]
    if name in call.project.subscriptions:
        raise Refusal(409, "alreadyExists", f"Resource already exists in the project: {name}.")
    deadline = float(call.body.get("ackDeadlineSeconds") or 10)
    call.project.subscriptions[name] = Subscription(name, deadline)
    return {**call.body, "name": call.parameters["name"]}


def get(call: Call) -> Body:
    found = _named(call)
    return {
        "name": call.parameters["subscription"],
        "ackDeadlineSeconds": int(found.deadline_seconds),
        "state": "ACTIVE",
    }


def pull(call: Call) -> Body:
    found = _named(call)
    most = int(call.body.get("maxMessages") or 0)
    if not 0 < most <= _MOST:
        why = f"maxMessages must be between 1 and {_MOST}."
        raise Refusal(400, "badRequest", why, state="INVALID_ARGUMENT")
    now = call.project.clock.now()
    due = [message for message in found.messages if message.due_seconds <= now][:most]
    for message in due:
        message.tries += 1
        message.due_seconds = now + found.deadline_seconds
        message.ack = f"{message.id}-{message.tries}"
    return {"receivedMessages": [_received(message) for message in due]} if due else {}


def acknowledge(call: Call) -> Body:
    """One that was delivered again since is not acknowledged by its old id."""
    found = _named(call)
    acks = set(call.body.get("ackIds") or ())
    found.messages = [message for message in found.messages if message.ack not in acks]
    return {}


def change_deadline(call: Call) -> Body:
    """Zero delivers at once again."""
    found = _named(call)
    now = call.project.clock.now()
    for message in found.messages:
        if message.ack in set(call.body.get("ackIds") or ()):
            message.due_seconds = now + float(call.body.get("ackDeadlineSeconds") or 0)
    return {}


def _received(message: Message) -> Body:
    told = {
        "data": message.data,
        "messageId": message.id,
        "publishTime": written_in_utc(message.published_seconds),
    }
    return {"ackId": message.ack, "message": told}


def _named(call: Call) -> Subscription:
    name = call.parameters["subscription"].rpartition("/")[2]
    found: Subscription | None = call.project.subscriptions.get(name)
    if found is None:
        raise Refusal(404, "notFound", f"Resource not found (resource={name}).", state="NOT_FOUND")
    return found


HANDLERS: dict[str, Handler] = {
    "pubsub.projects.subscriptions.create": create,
    "pubsub.projects.subscriptions.get": get,
    "pubsub.projects.subscriptions.pull": pull,
    "pubsub.projects.subscriptions.acknowledge": acknowledge,
    "pubsub.projects.subscriptions.modifyAckDeadline": change_deadline,
}
