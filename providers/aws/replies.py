"""EC2's descriptions of instances, translated to `CloudInstance`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from autoscaler.domain.instance import CloudInstance, CloudState
from providers.cloud.stock import in_zone
from providers.cloud.tags import OFFER_TAG, TOKEN_TAG

_STATES: Final = {
    "pending": CloudState.PENDING,
    "running": CloudState.RUNNING,
    "shutting-down": CloudState.STOPPING,
    "stopping": CloudState.STOPPING,
    "stopped": CloudState.STOPPING,
    "terminated": CloudState.TERMINATED,
}
_REASON_TIME: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def instances_in(page: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the instances in a DescribeInstances reply."""
    for reservation in page["Reservations"]:
        yield from reservation["Instances"]


def told_instance(reply: Mapping[str, Any]) -> CloudInstance:
    """Return one described instance.

    Its tag names the planned offer; EC2 may have launched the same type in another zone.
    `ended_seconds` is None unless the instance has ended and EC2 reports when.

    Raises:
        KeyError, ValueError, ...: see `providers.cloud.replies.readable`.
    """
    tags = {tag["Key"]: tag["Value"] for tag in reply.get("Tags", ())}
    planned, zone = tags.get(OFFER_TAG, ""), reply.get("Placement", {}).get("AvailabilityZone")
    state = _STATES[reply["State"]["Name"]]
    launched_seconds = reply["LaunchTime"].timestamp()
    reason_seconds = _reason_seconds(reply.get("StateTransitionReason") or "")
    return CloudInstance(
        id=reply["InstanceId"],
        token=tags.get(TOKEN_TAG, ""),
        offer=in_zone(planned, zone) if zone else planned,
        state=state,
        tags=tags,
        launched_seconds=launched_seconds,
        ended_seconds=reason_seconds if state is CloudState.TERMINATED else None,
    )


def _reason_seconds(reason: str) -> float | None:
    """Return the time that EC2 appends to most reasons of a state change; None without a time."""
    match = _REASON_TIME.search(reason)
    if match is None:
        return None
    return datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
