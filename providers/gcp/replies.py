"""Translation between Compute Engine's descriptions and `CloudInstance`.

A label has at most 63 lower-case letters, digits, - and _. A tag that does not fit is stored as a
digest in its label, for filters, and as it is in the instance's description.
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
# States of stopped instances, whose disks are billed until the instance is deleted.
_AT_REST: Final = frozenset({"STOPPED", "SUSPENDED", "TERMINATED"})
# States of instances without capacity yet. On flex-start such an instance is queued.
_UNDECIDED: Final = frozenset({"PENDING", "PROVISIONING"})
_IN_QUEUE: Final = "PENDING"
_FLEX_START: Final = "FLEX_START"
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{1,63}")


@dataclass(frozen=True, slots=True)
class DescribedInstance:
    """Instance as Compute Engine describes it.

    `is_settled` is True once the instance has capacity or is queued. `is_at_rest` is True if the
    instance is stopped but not deleted. `run_end_seconds` is when its maximum run ends, in seconds
    since the epoch; None if it does not run, or for as long as it likes.
    """

    instance: CloudInstance
    is_settled: bool
    is_at_rest: bool
    run_end_seconds: float | None = None


def instance_id(zone: str, name: str) -> str:
    """Return this provider's id of an instance. Names are unique in a zone."""
    return f"{zone}/{name}"


def place_of(instance: str) -> tuple[str, str]:
    """Return the zone and the name in an instance's id; both empty for any other id."""
    zone, separator, name = instance.partition("/")
    return (zone, name) if separator else ("", "")


def label_value(text: str) -> str:
    """Return the text, or its digest if the text is not a valid label value."""
    return text if _LABEL_VALUE.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[:40]


def label_key(tag: str) -> str:
    """Return a tag's key as a label key."""
    return tag.replace(":", "-")


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as labels."""
    return {label_key(key): label_value(value) for key, value in tags.items()}


def description_of(tags: Mapping[str, str]) -> str:
    """Return tags as JSON text."""
    return json.dumps(dict(sorted(tags.items())))


def told_instance(reply: Any, zone: str) -> DescribedInstance:
    """Return an instance from its description.

    Raises:
        KeyError, ValueError, ...: see `providers.cloud.replies.readable`.
    """
    tags = _tags(reply)
    state = _STATES[reply.status]
    launched_seconds: float | None = seconds_of(reply.creation_timestamp)
    if reply.scheduling.provisioning_model == _FLEX_START:
        # The creation time is when the request entered the queue.
        started = reply.last_start_timestamp
        launched_seconds = seconds_of(started) if started else None
        if reply.status in _UNDECIDED:
            state, launched_seconds = CloudState.QUEUED, None
    is_settled = reply.status not in _UNDECIDED or (
        reply.status == _IN_QUEUE and state is CloudState.QUEUED
    )
    instance = CloudInstance(
        id=instance_id(zone, reply.name),
        token=tags.get(TOKEN_TAG, ""),
        offer=tags.get(OFFER_TAG, ""),
        state=state,
        tags=tags,
        launched_seconds=launched_seconds,
        is_decided=is_settled or launched_seconds is None,
    )
    run_end = reply.resource_status.scheduling.termination_timestamp
    return DescribedInstance(
        instance,
        is_settled,
        is_at_rest=reply.status in _AT_REST,
        run_end_seconds=seconds_of(run_end) if run_end else None,
    )


def seconds_of(timestamp: str) -> float:
    """Return an RFC 3339 time in seconds since the epoch.

    Raises:
        ValueError: the text is not a time.
    """
    return datetime.fromisoformat(timestamp).timestamp()


def _tags(description: Any) -> dict[str, str]:
    """Return the tags in the description, if its owner matches the label; else the owner alone."""
    labels = dict(description.labels)
    try:
        parsed = json.loads(description.description or "null")
    except (ValueError, RecursionError):
        parsed = None
    entries = parsed if isinstance(parsed, dict) else {}
    tags = {str(key): str(value) for key, value in entries.items()}
    owner = labels.get(CONTROLLER_LABEL, "")
    if label_value(tags.get(CONTROLLER_TAG, "")) != owner:
        tags = {CONTROLLER_TAG: owner}
    return tags
