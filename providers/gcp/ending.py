"""Ends of instances. Every delete call of this provider passes `DeleteCalls._delete`.

That method refuses instances that were neither listed nor launched with this deployment's own
label.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from autoscaler.clock import Clock
from autoscaler.domain.errors import PermissionDenied, ProviderError, Unavailable
from autoscaler.domain.instance import CONTROLLER_TAG, CloudInstance
from providers.cloud.register import Register
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls
from providers.gcp.errors import is_gone
from providers.gcp.replies import place_of, told_instance
from providers.gcp.settings import GcpSettings, region_of

_log = logging.getLogger(__name__)


class DeleteCalls:
    """Sender of delete calls for instances of `controller`.

    `trouble` says why a stopped instance can't be deleted; None if none is left. `visible_seconds`
    is the maximum lag of Compute Engine's lists.
    """

    def __init__(
        self,
        settings: GcpSettings,
        controller: str,
        calls: ProjectCalls,
        register: Register,
        visible_seconds: float,
        clock: Clock,
    ) -> None:
        self._regions = frozenset(settings.regions)
        self._controller = controller
        self._calls = calls
        self._register = register
        self._visible_seconds = visible_seconds
        self._clock = clock
        self._requested: set[str] = set()
        self.trouble: str | None = None

    def end(self, instance_ids: Sequence[str]) -> None:
        """Request the end of the given instances that this deployment owns and that run.

        Raises:
            ProviderError: some requests were not accepted; the error is of the first.
        """
        first_error: ProviderError | None = None
        for instance_id in dict.fromkeys(instance_ids):
            try:
                owned = self._find(instance_id)
                if owned is not None:
                    self._delete(owned)
            except ProviderError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def sweep(self, at_rest: Iterable[CloudInstance]) -> None:
        """Delete stopped instances, whose disks would be billed forever.

        `trouble` has the last error. The next list repeats the attempt.
        """
        self.trouble = None
        for instance in at_rest:
            try:
                self._delete(instance)
            except ProviderError as error:
                self.trouble = f"{instance.id} is stopped and can't be deleted: {error}"
                _log.warning("%s", self.trouble)

    def was_asked(self, instance_id: str) -> bool:
        """Return whether this provider requested the instance's end."""
        return instance_id in self._requested

    def forget(self, instance_ids: Iterable[str]) -> None:
        """Drop the requests of instances that have ended."""
        self._requested.difference_update(instance_ids)

    def _find(self, instance: str) -> CloudInstance | None:
        """Return a registered or listed instance; None if it has ended or is of no region here."""
        registered = self._register.find(instance)
        if registered is not None:
            return None if registered.has_ended else registered.instance
        zone, name = place_of(instance)
        if region_of(zone) not in self._regions:
            return None
        try:
            description = self._calls.instance(zone, name)
        except ProviderError as error:
            if is_gone(error.__cause__):
                return None
            raise
        with readable(f"{zone}: instances.get"):
            return told_instance(description, zone).instance

    def _delete(self, instance: CloudInstance) -> None:
        if instance.tags.get(CONTROLLER_TAG) != self._controller:
            raise PermissionDenied(f"{instance.id} does not carry this deployment's label")
        zone, name = place_of(instance.id)
        _log.info("%s: ending %s", zone, name)
        try:
            self._calls.delete(zone, name)
        except ProviderError as error:
            self._check_refusal(instance, error)
        self._requested.add(instance.id)

    def _check_refusal(self, instance: CloudInstance, error: ProviderError) -> None:
        """Raise the error of a refused delete, unless the instance has ended.

        An instance unknown to Compute Engine has ended unless it is new.
        """
        if not is_gone(error.__cause__):
            raise error
        age_seconds = self._register.age_seconds(instance, self._clock.now())
        if age_seconds < self._visible_seconds:
            reason = "the instance may be too new for Compute Engine to find it: retry"
            raise Unavailable(f"{error}: {reason}") from error
