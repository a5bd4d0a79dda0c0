"""The one way in which this provider ends instances.

Every delete passes `Ending._delete`, which refuses what was not seen with, or launched with, this
deployment's own tag.
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


class Ending:
    """Ends instances of `controller`."""

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
        self._asked: set[str] = set()
        self.trouble: str | None = None

    def end(self, instance_ids: Sequence[str]) -> None:
        """Tell Compute Engine to end those that are ours and have not ended.

        Raises:
            ProviderError: some may not have been told; the others were.
        """
        first: ProviderError | None = None
        for one in dict.fromkeys(instance_ids):
            try:
                found = self._ours(one)
                if found is not None:
                    self._delete(found)
            except ProviderError as error:
                first = first or error
        if first is not None:
            raise first

    def sweep(self, at_rest: Iterable[CloudInstance]) -> None:
        """Delete what was stopped and not deleted: its disks would be billed for ever.

        What fails is in `trouble`, and tried again with the next list.
        """
        self.trouble = None
        for instance in at_rest:
            try:
                self._delete(instance)
            except ProviderError as error:
                self.trouble = f"{instance.id} is stopped and can't be deleted: {error}"
                _log.warning("%s", self.trouble)

    def was_asked(self, instance_id: str) -> bool:
        """Whether it is this provider that ends it."""
        return instance_id in self._asked

    def forget(self, instance_ids: Iterable[str]) -> None:
        """They have ended."""
        self._asked.difference_update(instance_ids)

    def _ours(self, instance: str) -> CloudInstance | None:
        """One that is known, or that Compute Engine knows; None if it is gone, or nobody's."""
        known = self._register.find(instance)
        if known is not None:
            return None if known.has_ended else known.instance
        zone, name = place_of(instance)
        if region_of(zone) not in self._regions:
            return None
        try:
            told = self._calls.instance(zone, name)
        except ProviderError as error:
            if is_gone(error.__cause__):
                return None
            raise
        with readable(f"{zone}: instances.get"):
            return told_instance(told, zone).instance

    def _delete(self, instance: CloudInstance) -> None:
        if instance.tags.get(CONTROLLER_TAG) != self._controller:
            raise PermissionDenied(f"{instance.id} is not labelled as this deployment's")
        zone, name = place_of(instance.id)
        _log.info("%s: ending %s", zone, name)
        try:
            self._calls.delete(zone, name)
        except ProviderError as error:
            self._refused(instance, error)
        self._asked.add(instance.id)

    def _refused(self, instance: CloudInstance, error: ProviderError) -> None:
        """What is gone has ended. What is new is not gone but not known yet."""
        if not is_gone(error.__cause__):
            raise error
        age_seconds = self._register.age_seconds(instance, self._clock.now())
        if age_seconds < self._visible_seconds:
            reason = "it is too new for Compute Engine to know it everywhere: again"
            raise Unavailable(f"{error}: {reason}") from error
