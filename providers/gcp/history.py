"""History of an instance, from its zone's operations, which Compute Engine keeps for weeks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from autoscaler.domain.errors import ProviderError
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.errors import Call, failure
from providers.gcp.replies import place_of, seconds_of

PREEMPTED: Final = "compute.instances.preempted"
MAINTAINED: Final = "compute.instances.terminateOnHostMaintenance"
TAKEN_BACK: Final = frozenset({PREEMPTED, MAINTAINED})
# Operations that end an instance, apart from preemption and maintenance.
_ENDS: Final = frozenset(
    {
        *("delete", "stop", "compute.instances.deferredDelete", "compute.instances.deferredStop"),
        *("compute.instances.guestTerminate", "compute.instances.hostError"),
    }
)


@dataclass(frozen=True, slots=True)
class Past:
    """History of an instance. Times are seconds since the epoch; None if there was no such event.

    `launched_seconds` is when the instance was created. `taken_seconds` is when the cloud
    reclaimed it, `ended_seconds` when another operation ended it. `refusal` says why it was never
    created.
    """

    launched_seconds: float | None = None
    taken_seconds: float | None = None
    ended_seconds: float | None = None
    refusal: ProviderError | None = None


def past_of(calls: ProjectCalls, instance: str) -> Past:
    """Return the history of an instance.

    Raises:
        ProviderError: the operations can't be listed.
    """
    zone, name = place_of(instance)
    operation_filter = f'targetLink eq ".*/instances/{name}"'
    with readable(f"{zone}: zoneOperations.list"):
        operations = [
            operation
            for page in calls.operations(zone, operation_filter)
            for operation in page.items
        ]
        reclaim_times = [
            _start_seconds(operation)
            for operation in operations
            if operation.operation_type in TAKEN_BACK
        ]
        end_times = [
            seconds_of(operation.end_time)
            for operation in operations
            if _is_finished_end(operation)
        ]
        launch_times = [
            seconds_of(operation.end_time)
            for operation in operations
            if _is_finished_insert(operation)
        ]
        return Past(
            min(launch_times, default=None),
            min(reclaim_times, default=None),
            min(end_times, default=None),
            next(
                (error for operation in operations if (error := _refusal(operation, zone))), None
            ),
        )


def _start_seconds(operation: Any) -> float:
    return seconds_of(operation.insert_time or operation.start_time)


def _is_finished_end(operation: Any) -> bool:
    is_end = operation.operation_type in _ENDS
    return is_end and bool(operation.end_time) and not operation.error.errors


def _is_finished_insert(operation: Any) -> bool:
    is_over = operation.operation_type == "insert" and bool(operation.end_time)
    return is_over and not operation.error.errors


def _refusal(operation: Any, zone: str) -> ProviderError | None:
    if operation.operation_type != "insert":
        return None
    return failure(operation, Call(zone, "instances.insert"))
