"""What became of an instance: the operations of its zone, of which Compute Engine keeps weeks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from autoscaler.domain.errors import ProviderError
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.errors import Call, refusal
from providers.gcp.replies import place_of, seconds_of

PREEMPTED: Final = "compute.instances.preempted"
MAINTAINED: Final = "compute.instances.terminateOnHostMaintenance"
TAKEN_BACK: Final = frozenset({PREEMPTED, MAINTAINED})
# What ends an instance beside a preemption, by whoever.
_ENDS: Final = frozenset(
    {
        *("delete", "stop", "compute.instances.deferredDelete", "compute.instances.deferredStop"),
        *("compute.instances.guestTerminate", "compute.instances.hostError"),
    }
)


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of an instance's end. Times are since the epoch, None where there is none.

    `launched_seconds` is when it came to be, `taken_seconds` when the cloud took it back,
    `ended_seconds` when all else ended it; `refusal` is why it never came to be.
    """

    launched_seconds: float | None = None
    taken_seconds: float | None = None
    ended_seconds: float | None = None
    refusal: ProviderError | None = None


def past_of(calls: ProjectCalls, instance: str) -> Past:
    """What happened to an instance.

    Raises:
        ProviderError: it can't be asked.
    """
    zone, name = place_of(instance)
    wanted = f'targetLink eq ".*/instances/{name}"'
    with readable(f"{zone}: zoneOperations.list"):
        found = [one for page in calls.operations(zone, wanted) for one in page.items]
        taken = [_began(one) for one in found if one.operation_type in TAKEN_BACK]
        ended = [seconds_of(one.end_time) for one in found if _has_ended(one)]
        made = [seconds_of(one.end_time) for one in found if _has_made(one)]
        return Past(
            min(made, default=None),
            min(taken, default=None),
            min(ended, default=None),
            next((why for one in found if (why := _refusal(one, zone))), None),
        )


def _began(operation: Any) -> float:
    return seconds_of(operation.insert_time or operation.start_time)


def _has_ended(operation: Any) -> bool:
    is_end = operation.operation_type in _ENDS
    return is_end and bool(operation.end_time) and not operation.error.errors


def _has_made(operation: Any) -> bool:
    is_over = operation.operation_type == "insert" and bool(operation.end_time)
    return is_over and not operation.error.errors


def _refusal(operation: Any, zone: str) -> ProviderError | None:
    if operation.operation_type != "insert" or not operation.error.errors:
        return None
    first = operation.error.errors[0]
    return refusal(first.code, first.message, Call(zone, "instances.insert"))
