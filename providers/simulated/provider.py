"""A cloud on a clock that is passed in: what one deployment sees of it.

With a virtual clock a month passes in seconds. It is as deterministic as the calls that are made:
of chance there is only the seed.
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
    """Sells the instances of `cloud` to the deployment `controller`. Instances run nothing.

    They are billed from the launch; `terminate` ends them at once. A reclaimed one ends by itself
    after its notice. Orders on flex-start wait in a queue while a trace has no capacity.
    """

    def __init__(self, cloud: SimulatedCloud, controller: str) -> None:
        self._cloud = cloud
        self._controller = controller

    @property
    def name(self) -> str:
        """The provider that every offer names."""
        return self._cloud.settings.provider

    @property
    def identity(self) -> None:
        """Simulated instances prove nothing."""
        return None

    def offers(self) -> Sequence[Offer]:
        """Those of the settings."""
        return self._cloud.settings.offers

    def limits(self) -> Sequence[Limit]:
        """Those of the settings. Other deployments may take some of them."""
        return self._cloud.settings.limits

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the one of this token, which may have ended.

        Raises:
            PermissionDenied: the tags name another deployment; nothing was launched.
            NotFound: there is no such offer; nothing was launched.
            InsufficientCapacity: the trace, or a limit of devices or instances, leaves no room;
                of a trace an order on flex-start waits for some.
            QuotaExceeded: a limit in US dollars an hour leaves none.
        """
        if request.tags.get(CONTROLLER_TAG) != self._controller:
            raise PermissionDenied(f"tags: {CONTROLLER_TAG} must be {self._controller}")
        return self._cloud.launch(self._controller, request)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """End those of them that this deployment owns."""
        self._cloud.terminate(self._controller, instance_ids)

    def instances(self) -> Sequence[CloudInstance]:
        """What this deployment owns, ended ones for an hour, each as it is now."""
        return self._cloud.instances(self._controller)

    def interruptions(self) -> Sequence[Interruption]:
        """Notices of instances that have not ended."""
        return self._cloud.interruptions(self._controller)

    def reclaim(self, instance_id: str) -> None:
        """Take an instance back as a cloud does: notice now, the end after the notice period.

        Raises:
            NotFound: this deployment holds no such instance.
        """
        self._cloud.reclaim(self._controller, instance_id)

    def billed_usd(self) -> Decimal:
        """What this cloud charges the deployment, up to now."""
        return self._cloud.billed_usd(self._controller)

    def next_event_seconds(self) -> float | None:
        """When something in this cloud next changes by itself; None if nothing will.

        A boot ends, notice is given, an instance ends, or there is capacity again for what was
        refused. A simulation may jump there and misses nothing.
        """
        return self._cloud.next_event_seconds()
