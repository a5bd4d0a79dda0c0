"""What EC2 tells of instances, as the contract has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from autoscaler.domain.instance import CloudInstance, CloudState
from providers.cloud.tags import OFFER_TAG, TOKEN_TAG

_STATES: Final = {
    "pending": CloudState.PENDING,
    "running": CloudState.RUNNING,
    "shutting-down": CloudState.STOPPING,
    "stopping": CloudState.STOPPING,
    "stopped": CloudState.STOPPING,
    "terminated": CloudState.TERMINATED,
}
_WHEN: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def instances_in(page: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The instances of one reply of DescribeInstances."""
    for reservation in page["Reservations"]:
        yield from reservation["Instances"]


def told_instance(told: Mapping[str, Any]) -> CloudInstance:
    """One of them; an ended one has `ended_seconds` only where EC2 says when.

    Raises:
        KeyError, ValueError, ...: see `providers.cloud.replies.readable`.
    """
    tags = {tag["Key"]: tag["Value"] for tag in told.get("Tags", ())}
    state = _STATES[told["State"]["Name"]]
    launched_seconds = told["LaunchTime"].timestamp()
    ended = _when(told.get("StateTransitionReason") or "")
    return CloudInstance(
        id=told["InstanceId"],
        token=tags.get(TOKEN_TAG, ""),
        offer=tags.get(OFFER_TAG, ""),
        state=state,
        tags=tags,
        launched_seconds=launched_seconds,
        ended_seconds=ended if state is CloudState.TERMINATED else None,
    )


def _when(reason: str) -> float | None:
    """EC2 appends the moment to the reason of most changes of state."""
    found = _WHEN.search(reason)
    if found is None:
        return None
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
