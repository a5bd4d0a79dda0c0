"""History of an instance, from its zone's operations, which Compute Engine keeps for weeks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import PermissionDenied, ProviderError
from autoscaler.domain.instance import CloudInstance
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.errors import Call, failure
from providers.gcp.replies import place_of, seconds_of

_log = logging.getLogger(__name__)

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


class GoneInstances:
    """Instances that Compute Engine no longer has, until their histories are known.

    Only a history has the time at which the bill of an instance ended. While the operations can't
    be listed, a history is awaited for `wait_seconds` from when the instance was first found gone.
    After an error, a zone's operations are not listed again until the next list of instances.
    """

    def __init__(self, calls: ProjectCalls, wait_seconds: float, clock: Clock) -> None:
        self._calls = calls
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._first_seconds: dict[str, float] = {}
        self._errors: dict[str, ProviderError] = {}
        self._zone_errors: dict[str, ProviderError] = {}

    @property
    def troubles(self) -> Sequence[str]:
        """Errors for which histories are awaited, by instance."""
        return [
            f"{instance} is gone, but its end is unknown until its operations are listed: {error}"
            for instance, error in sorted(self._errors.items())
        ]

    def past(self, instance: CloudInstance) -> Past | None:
        """Return the history of an instance that is gone; None while the history is awaited.

        After the wait, the time at which the instance was first found gone stands for its end.
        """
        now_seconds = self._clock.now()
        first_seconds = self._first_seconds.setdefault(instance.id, now_seconds)
        self._errors.pop(instance.id, None)
        zone = place_of(instance.id)[0]
        error = self._zone_errors.get(zone)
        if error is None:
            try:
                return past_of(self._calls, instance.id)
            except ProviderError as caught:
                error = self._zone_errors[zone] = caught
        # Ending an instance without a launch time would lose the time that it may have run.
        can_end = instance.launched_seconds is not None or isinstance(error, PermissionDenied)
        if can_end and now_seconds - first_seconds >= self._wait_seconds:
            _log.warning("%s has ended at an unknown time: %s", instance.id, error)
            return Past(ended_seconds=first_seconds)
        _log.info("the end of %s is awaited: %s", instance.id, error)
        self._errors[instance.id] = error
        return None

    def forget(self, instance: str) -> None:
        """Drop an instance that was found after all."""
        self._first_seconds.pop(instance, None)
        self._errors.pop(instance, None)

    def begin(self, instances: Iterable[str]) -> None:
        """Begin a list of instances: drop all but the given ones, which the list leaves out."""
        self._zone_errors.clear()
        for instance in self._first_seconds.keys() - set(instances):
            self.forget(instance)


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
