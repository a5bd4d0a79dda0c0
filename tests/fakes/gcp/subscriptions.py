"""Pub/Sub: subscriptions of a sink that receives audit log entries of instances."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Final

from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import Refusal
from tests.fakes.gcp.project import Body, Instance, Project, utc_timestamp

_MAXIMUM: Final = 1000
# Events that the sink of terraform/modules/gcp routes.
ROUTED_EVENTS: Final = tuple(
    f"compute.instances.{event}"
    for event in ("preempted", "terminateOnHostMaintenance", "hostError", "guestTerminate")
)


@dataclass(slots=True)
class Message:
    """Message: `due_seconds` is its next delivery time, `tries` the number of deliveries."""

    id: str
    data: str
    published_seconds: float
    due_seconds: float
    tries: int = 0
    ack: str = ""


@dataclass(slots=True)
class Subscription:
    """Subscription: an unacknowledged message is delivered again after `deadline_seconds`."""

    name: str
    deadline_seconds: float = 10.0
    messages: list[Message] = field(default_factory=list)


def log(project: Project, instance: Instance, kind: str, seconds: float) -> None:
    """Publish the audit log's entry of a system event if the sink routes it."""
    if kind not in ROUTED_EVENTS:
        return
    moment = utc_timestamp(seconds)
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
    """Create a subscription of any topic; one log feeds them all."""
    name = call.parameters["name"].rpartition("/")[2]
    if name in call.project.subscriptions:
        raise Refusal(409, "alreadyExists", f"Resource already exists in the project: {name}.")
    deadline = float(call.body.get("ackDeadlineSeconds") or 10)
    call.project.subscriptions[name] = Subscription(name, deadline)
    return {**call.body, "name": call.parameters["name"]}


def get(call: Call) -> Body:
    subscription = _named(call)
    return {
        "name": call.parameters["subscription"],
        "ackDeadlineSeconds": int(subscription.deadline_seconds),
        "state": "ACTIVE",
    }


def pull(call: Call) -> Body:
    subscription = _named(call)
    maximum = int(call.body.get("maxMessages") or 0)
    if not 0 < maximum <= _MAXIMUM:
        why = f"maxMessages must be between 1 and {_MAXIMUM}."
        raise Refusal(400, "badRequest", why, state="INVALID_ARGUMENT")
    now = call.project.clock.now()
    due = [message for message in subscription.messages if message.due_seconds <= now][:maximum]
    for message in due:
        message.tries += 1
        message.due_seconds = now + subscription.deadline_seconds
        message.ack = f"{message.id}-{message.tries}"
    return {"receivedMessages": [_received_message(message) for message in due]} if due else {}


def acknowledge(call: Call) -> Body:
    """Acknowledge messages; an id of an earlier delivery has no effect."""
    subscription = _named(call)
    acks = set(call.body.get("ackIds") or ())
    subscription.messages = [
        message for message in subscription.messages if message.ack not in acks
    ]
    return {}


def change_deadline(call: Call) -> Body:
    """Change the delivery deadline of messages; zero delivers them again at once."""
    subscription = _named(call)
    now = call.project.clock.now()
    for message in subscription.messages:
        if message.ack in set(call.body.get("ackIds") or ()):
            message.due_seconds = now + float(call.body.get("ackDeadlineSeconds") or 0)
    return {}


def _received_message(message: Message) -> Body:
    message_body = {
        "data": message.data,
        "messageId": message.id,
        "publishTime": utc_timestamp(message.published_seconds),
    }
    return {"ackId": message.ack, "message": message_body}


def _named(call: Call) -> Subscription:
    name = call.parameters["subscription"].rpartition("/")[2]
    subscription: Subscription | None = call.project.subscriptions.get(name)
    if subscription is None:
        raise Refusal(404, "notFound", f"Resource not found (resource={name}).", state="NOT_FOUND")
    return subscription


HANDLERS: dict[str, Handler] = {
    "pubsub.projects.subscriptions.create": create,
    "pubsub.projects.subscriptions.get": get,
    "pubsub.projects.subscriptions.pull": pull,
    "pubsub.projects.subscriptions.acknowledge": acknowledge,
    "pubsub.projects.subscriptions.modifyAckDeadline": change_deadline,
}
