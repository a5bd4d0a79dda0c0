"""What Compute Engine tells of instances, as the contract has it, and what it is told of them.

Labels have 63 characters, lower-case letters, digits, - and _; what does not fit into one is there
as a digest, to be filtered by, and as it is in the instance's description.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from autoscaler.domain.instance import CONTROLLER_TAG, CloudInstance, CloudState
from providers.cloud.tags import OFFER_TAG, TOKEN_TAG

CONTROLLER_LABEL: Final = "castor-controller"

_STATES: Final = {
    "PENDING": CloudState.PENDING,
    "PROVISIONING": CloudState.PENDING,
    "STAGING": CloudState.PENDING,
    "RUNNING": CloudState.RUNNING,
    "REPAIRING": CloudState.RUNNING,
    "PENDING_STOP": CloudState.RUNNING,
    "STOPPING": CloudState.STOPPING,
    "SUSPENDING": CloudState.STOPPING,
    "DEPROVISIONING": CloudState.STOPPING,
    "STOPPED": CloudState.STOPPING,
    "SUSPENDED": CloudState.STOPPING,
    "TERMINATED": CloudState.STOPPING,
}
# It does not run, and its disks are billed until somebody deletes it.
_AT_REST: Final = frozenset({"STOPPED", "SUSPENDED", "TERMINATED"})
# There is no capacity yet for what is no further than that: on flex-start it waits in a queue.
_UNDECIDED: Final = frozenset({"PENDING", "PROVISIONING"})
_IN_QUEUE: Final = "PENDING"
_FLEX_START: Final = "FLEX_START"
_VALUE: Final = re.compile(r"[a-z0-9_-]{1,63}")


@dataclass(frozen=True, slots=True)
class Seen:
    """An instance as Compute Engine tells of it.

    `is_settled` says that what comes of its launch is for lists to tell: there is capacity, or it
    is in a queue for it; `is_at_rest` that it is stopped and not deleted.
    """

    instance: CloudInstance
    is_settled: bool
    is_at_rest: bool


def instance_id(zone: str, name: str) -> str:
    """The id that this provider knows an instance by: names are unique in a zone."""
    return f"{zone}/{name}"


def place_of(instance: str) -> tuple[str, str]:
    """The zone and the name that an id is made of; both empty where it is of no instance here."""
    zone, found, name = instance.partition("/")
    return (zone, name) if found else ("", "")


def label_value(text: str) -> str:
    """The text, or its digest where a label can't have it."""
    return text if _VALUE.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[:40]


def label_key(tag: str) -> str:
    """A tag's key, as labels have it."""
    return tag.replace(":", "-")


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as labels."""
    return {label_key(key): label_value(value) for key, value in tags.items()}


def description_of(tags: Mapping[str, str]) -> str:
    """Tags as they are."""
    return json.dumps(dict(sorted(tags.items())))


def told_instance(told: Any, zone: str) -> Seen:
    """One instance.

    Raises:
        KeyError, ValueError, ...: see `providers.cloud.replies.readable`.
    """
    tags = _tags(told)
    state = _STATES[told.status]
    launched_seconds: float | None = seconds_of(told.creation_timestamp)
    if told.scheduling.provisioning_model == _FLEX_START:
        # Made is its place in the queue; it starts once it has left that.
        started = told.last_start_timestamp
        launched_seconds = seconds_of(started) if started else None
        if told.status in _UNDECIDED:
            state, launched_seconds = CloudState.QUEUED, None
    is_settled = told.status not in _UNDECIDED or told.status == _IN_QUEUE
    instance = CloudInstance(
        id=instance_id(zone, told.name),
        token=tags.get(TOKEN_TAG, ""),
        offer=tags.get(OFFER_TAG, ""),
        state=state,
        tags=tags,
        launched_seconds=launched_seconds,
        is_decided=is_settled or launched_seconds is None,
    )
    return Seen(instance, is_settled, is_at_rest=told.status in _AT_REST)


def seconds_of(timestamp: str) -> float:
    """A moment of RFC 3339, in seconds since the epoch.

    Raises:
        ValueError: it is none.
    """
    return datetime.fromisoformat(timestamp).timestamp()


def _tags(told: Any) -> dict[str, str]:
    """From the description, if it is what a launch wrote; else what labels say."""
    labels = dict(told.labels)
    try:
        found = json.loads(told.description or "null")
    except (ValueError, RecursionError):
        found = None
    words = found if isinstance(found, dict) else {}
    tags = {str(key): str(value) for key, value in words.items()}
    owner = labels.get(CONTROLLER_LABEL, "")
    if label_value(tags.get(CONTROLLER_TAG, "")) != owner:
        tags = {CONTROLLER_TAG: owner}
    return tags
