"""Provider of the machines of one rack."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from castor_rack.api import NameTaken, RackApi
from castor_rack.records import Records
from castor_rack.settings import RackSettings

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, PermissionDenied, QuotaExceeded, Unavailable
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    CloudInstance,
    CloudState,
    Interruption,
    LaunchRequest,
)
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from providers.base import Provider

_TOKEN_LABEL, _OFFER_LABEL = "castor:token", "castor:offer"
_STATES = {
    "starting": CloudState.PENDING,
    "running": CloudState.RUNNING,
    "stopping": CloudState.STOPPING,
}
_NETWORK_BYTES_PER_SECOND = 1.25e9  # 10 Gbit/s between machines


class RackProvider(Provider):
    """Machines of the rack that the deployment `controller` owns."""

    def __init__(
        self,
        settings: RackSettings,
        api: RackApi,
        records: Records,
        controller: str,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._api = api
        self._records = records
        self._controller = controller
        self._clock = clock
        self._lock = threading.Lock()  # no list is taken in while a launch is under way
        self._types: dict[str, str] = {}  # type by offer id

    @property
    def identity(self) -> None:
        """Always None: the rack signs no identities."""
        return None

    def offers(self) -> Sequence[Offer]:
        """Return an offer for each type of the settings that the rack has."""
        offers = [
            self._offer(type) for type in self._api.types() if type["name"] in self._settings.types
        ]
        self._types = {offer.id: offer.instance_type for offer in offers}
        return offers

    def limits(self) -> Sequence[Limit]:
        """Return the limit of the settings."""
        maximum, offers = self._settings.max_machines, frozenset(self._known_types())
        return [Limit("rack machines", LimitUnit.INSTANCES, maximum, offers)]

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one machine, or return the one of this token; see `Provider.launch`."""
        if request.tags.get(CONTROLLER_TAG) != self._controller:
            raise PermissionDenied(f"tags: {CONTROLLER_TAG} must be {self._controller}")
        type_name = self._known_types().get(request.offer)
        if type_name is None:
            raise NotFound(f"offer {request.offer}: the settings name no such type")
        with self._lock:
            known = self._records.of_token(request.token)
            if known is not None:
                return known
            if self._records.alive() >= self._settings.max_machines:
                raise QuotaExceeded(f"max_machines: {self._settings.max_machines} are held")
            launched = _instance(self._start(request, type_name))
            self._records.add(launched)
            return launched

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Stop machines of this deployment; see `Provider.terminate`."""
        for machine in self._machines():
            if machine["id"] in instance_ids:
                with suppress(NotFound):
                    self._api.stop(machine["id"])

    def instances(self) -> Sequence[CloudInstance]:
        """Return this deployment's instances, ended ones for a day; see `Provider.instances`."""
        with self._lock:
            listed = map(_instance, self._machines())
            return self._records.take_in(listed, self._clock.now())

    def interruptions(self) -> Sequence[Interruption]:
        """Return the announced reclaims."""
        return [
            Interruption(machine["id"], machine["ends"]["announced"], machine["ends"]["at"])
            for machine in self._machines()
            if machine["ends"] is not None
        ]

    def _machines(self) -> list[dict[str, Any]]:
        return self._api.machines(CONTROLLER_TAG, self._controller)

    def _known_types(self) -> dict[str, str]:
        if not self._types:
            self.offers()
        return self._types

    def _offer(self, type: dict[str, Any]) -> Offer:
        return Offer(
            id=f"rack/{type['name']}",
            provider="rack",
            instance_type=type["name"],
            zone="rack",
            purchase=Purchase.ON_DEMAND,
            devices=type["gpus"],
            device_kind=type["gpu"],
            usd_per_hour=Decimal(type["usd_per_hour"]),
            boot_seconds=self._settings.boot,
            network_bytes_per_second=_NETWORK_BYTES_PER_SECOND,
            network="rack",
        )

    def _start(self, request: LaunchRequest, type_name: str) -> dict[str, Any]:
        """Start the machine of a token, or return it if an earlier call has started it."""
        digest = hashlib.sha256(f"{self._controller}\n{request.token}".encode()).hexdigest()
        name = f"castor-{digest[:16]}"
        own_labels = {_TOKEN_LABEL: request.token, _OFFER_LABEL: request.offer}
        machine = {
            "name": name,
            "type": type_name,
            "labels": {**request.tags, **own_labels},
            "user_data": request.user_data,
        }
        try:
            return self._api.start(machine)
        except NameTaken:
            for started in self._machines():
                if started["name"] == name:
                    return started
            raise Unavailable(f"{name} is taken and not listed: repeat the launch") from None


def _instance(machine: dict[str, Any]) -> CloudInstance:
    labels = dict(machine["labels"])
    return CloudInstance(
        id=machine["id"],
        token=labels.pop(_TOKEN_LABEL),
        offer=labels.pop(_OFFER_LABEL),
        state=_STATES[machine["status"]],
        tags=labels,
        launched_seconds=machine["created"],
    )
