"""Provider for a simulated cloud on a given clock: one deployment's view of the cloud.

With a virtual clock a month passes in seconds. The results depend only on the calls and the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from autoscaler.domain.errors import PermissionDenied
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    CloudInstance,
    Interruption,
    LaunchRequest,
)
from autoscaler.domain.offer import Limit, Offer
from providers.base import Provider
from providers.simulated.cloud import SimulatedCloud


class SimulatedProvider(Provider):
    """Provider of the instances of `cloud` for the deployment `controller`. Instances run nothing.

    Instances are billed from their launch. `terminate` ends them at once. A reclaimed instance
    ends by itself after its notice. Requests on flex-start are queued while a trace has no
    capacity.
    """

    def __init__(self, cloud: SimulatedCloud, controller: str) -> None:
        self._cloud = cloud
        self._controller = controller

    @property
    def name(self) -> str:
        """Provider name in every offer."""
        return self._cloud.settings.provider

    @property
    def identity(self) -> None:
        """Always None: simulated instances have no signed identity."""
        return None

    def offers(self) -> Sequence[Offer]:
        """Return the offers of the settings."""
        return self._cloud.settings.offers

    def limits(self) -> Sequence[Limit]:
        """Return the limits of the settings, which all deployments share."""
        return self._cloud.settings.limits

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the instance of this token, which may have ended.

        Raises:
            PermissionDenied: the tags name another deployment; nothing was launched.
            NotFound: no such offer exists; nothing was launched.
            InsufficientCapacity: the trace, or a limit on devices or instances, leaves no room. On
                flex-start a request is queued while only the trace has no room.
            QuotaExceeded: a limit in US dollars per hour leaves no room.
        """
        if request.tags.get(CONTROLLER_TAG) != self._controller:
            raise PermissionDenied(f"tags: {CONTROLLER_TAG} must be {self._controller}")
        return self._cloud.launch(self._controller, request)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """End the given instances of this deployment."""
        self._cloud.terminate(self._controller, instance_ids)

    def instances(self) -> Sequence[CloudInstance]:
        """Return this deployment's instances as they are now; ended ones for an hour."""
        return self._cloud.instances(self._controller)

    def interruptions(self) -> Sequence[Interruption]:
        """Return the reclaim notices of instances that have not ended."""
        return self._cloud.interruptions(self._controller)

    def reclaim(self, instance_id: str) -> None:
        """Reclaim an instance as a cloud does: notice now, the end after the notice period.

        Raises:
            NotFound: the deployment has no such running instance.
        """
        self._cloud.reclaim(self._controller, instance_id)

    def billed_usd(self) -> Decimal:
        """Return the deployment's bill up to now in US dollars."""
        return self._cloud.billed_usd(self._controller)

    def next_event_seconds(self) -> float | None:
        """Return when the cloud next changes without a call; None if it never does.

        Such an event is the end of a boot, a notice, the end of an instance, or new capacity for a
        refused or queued request. A simulation may advance to this time without missing an event.
        """
        return self._cloud.next_event_seconds()
