"""Launches: one insert for each order, of an instance whose name is made of the order's token.

Names are unique in a zone, so the name is what keeps an order from being bought twice: Compute
Engine refuses a second instance of it, and the first one's labels say whose it is. It also knows
an order again by its request id, and then tells what came of it, for about an hour.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final

from google.cloud import compute_v1

from autoscaler.clock import Clock
from autoscaler.domain.errors import (
    PermissionDenied,
    ProviderError,
    Unavailable,
    UnknownRefusal,
)
from autoscaler.domain.instance import CONTROLLER_TAG, CloudInstance, CloudState, LaunchRequest
from autoscaler.domain.offer import Purchase
from providers.cloud.register import Register
from providers.cloud.replies import readable
from providers.cloud.tags import DEPLOYMENT_TAG, OFFER_TAG, POOL_TAG, TOKEN_TAG
from providers.gcp.calls import ProjectCalls
from providers.gcp.errors import ALREADY_EXISTS, Call, is_gone, is_taken, refusal
from providers.gcp.parcels import BucketParcels
from providers.gcp.replies import (
    Seen,
    description_of,
    instance_id,
    labels_of,
    seconds_of,
    told_instance,
)
from providers.gcp.settings import GcpSale, GcpSettings, Patience, template_of

_log = logging.getLogger(__name__)

_MOST_ATTEMPTS_KNOWN: Final = 4096
# For so long Compute Engine keeps an order in its queue; it takes no longer one.
QUEUE_SECONDS: Final = 7200
# Of Castor's request ids among all UUIDs of version 5.
_REQUESTS: Final = uuid.UUID("6f0d3c1e-5a0f-4c5e-9b8e-2f6b6a1d7c55")


class Launching:
    """Sends launches and finds out what came of them."""

    def __init__(
        self,
        settings: GcpSettings,
        calls: ProjectCalls,
        register: Register,
        patience: Patience,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._register = register
        self._parcels = BucketParcels(settings, calls)
        self._patience = patience
        self._clock = clock
        self._attempts: OrderedDict[str, int] = OrderedDict()

    def launch(self, request: LaunchRequest, sale: GcpSale) -> CloudInstance:
        """Launch, or find what this token launched.

        Raises:
            ProviderError: as `Provider.launch`. After any but `Unavailable`, nothing was launched
                and the token may be used again.
        """
        zone, name = sale.offer.zone, self.name_of(request)
        self._parcels.put(sale, name, request.user_data)
        wanted = self._wanted(request, sale, name)
        asked_seconds = self._clock.now()
        try:
            operation = self._calls.insert(zone, sale.pool_name, **wanted)
        except Unavailable as error:
            if not is_taken(error.__cause__):
                raise
            return self._taken(request, sale, name)
        if operation.insert_time:
            with readable(f"{zone}: instances.insert"):
                asked_seconds = seconds_of(operation.insert_time)
        return self._followed(operation, request, sale, asked_seconds)

    def name_of(self, request: LaunchRequest) -> str:
        """The name of the instance of an order, the same at each try."""
        told = (self._settings.deployment, *sorted(request.tags.items()), request.token)
        digest = hashlib.sha256(repr(told).encode()).hexdigest()[:24]
        return f"{self._settings.prefix}{digest}"

    def _followed(
        self, operation: Any, request: LaunchRequest, sale: GcpSale, asked_seconds: float
    ) -> CloudInstance:
        """Until there is capacity for it, or it is known that there is none, or for long enough.

        What is in a queue, or is not known by then, later lists show: as running, or as gone.
        """
        zone, name = sale.offer.zone, self.name_of(request)
        until_seconds = self._clock.monotonic() + self._patience.launch_seconds
        while True:
            if self._has_failed(operation, request, sale):
                return self._taken(request, sale, name)
            seen = self._seen(zone, name)
            is_decided = operation.status == compute_v1.Operation.Status.DONE.name
            is_late = self._clock.monotonic() >= until_seconds
            if is_decided or is_late or (seen is not None and seen.is_settled):
                return self._registered(seen, request, sale, asked_seconds, is_decided)
            self._clock.sleep(self._patience.look_seconds)
            try:
                operation = self._calls.operation(zone, operation.name)
            except ProviderError as error:
                _log.info("%s is ordered and can't be followed yet: %s", name, error)
                return self._registered(seen, request, sale, asked_seconds)

    def _has_failed(self, operation: Any, request: LaunchRequest, sale: GcpSale) -> bool:
        """Whether the operation has failed since there is such an instance.

        Raises:
            ProviderError: it has failed in another way, and nothing was launched.
        """
        call = Call(sale.offer.zone, "instances.insert", sale.pool_name)
        errors = [(one.code, one.message) for one in operation.error.errors]
        if not errors:
            return False
        self._count_attempt(request.token)
        code, message = errors[0]
        if code in ALREADY_EXISTS:
            return True
        meant = refusal(code, message, call)
        # Nothing was launched, which is more than is known after a call that failed with it.
        raise UnknownRefusal(str(meant)) if isinstance(meant, Unavailable) else meant

    def _taken(self, request: LaunchRequest, sale: GcpSale, name: str) -> CloudInstance:
        """The instance that has the name already.

        Raises:
            PermissionDenied: it is another one.
            Unavailable: it can't be looked at yet, or is just vanishing.
        """
        zone = sale.offer.zone
        seen = self._seen(zone, name)
        if seen is None:
            raise Unavailable(f"{zone}: {name} is there and can't be looked at yet: again")
        tags = seen.instance.tags
        ours = (request.tags[CONTROLLER_TAG], request.token)
        if (tags.get(CONTROLLER_TAG), seen.instance.token) != ours:
            raise PermissionDenied(f"{zone}: {name} is not this deployment's: delete or rename it")
        return self._register.add(sale.scope, seen.instance, self._clock.now())

    def _seen(self, zone: str, name: str) -> Seen | None:
        """As Compute Engine tells of it; None where it does not, or not yet."""
        try:
            told = self._calls.instance(zone, name)
            with readable(f"{zone}: instances.get"):
                return told_instance(told, zone)
        except ProviderError as error:
            if not is_gone(error.__cause__):
                _log.info("%s can't be looked at yet: %s", name, error)
            return None

    def _registered(
        self,
        seen: Seen | None,
        request: LaunchRequest,
        sale: GcpSale,
        asked_seconds: float,
        is_decided: bool = False,
    ) -> CloudInstance:
        """Return the instance as it was seen, or as pending or queued if it was not seen yet.

        `is_decided` says that its operation has succeeded.
        """
        tags = self._tags(request, sale)
        is_queued = sale.offer.purchase is Purchase.FLEX_START
        if seen is None:
            told = CloudInstance(
                id=instance_id(sale.offer.zone, self.name_of(request)),
                token=request.token,
                offer=request.offer,
                state=CloudState.QUEUED if is_queued else CloudState.PENDING,
                tags=tags,
                launched_seconds=None if is_queued else asked_seconds,
                is_decided=is_queued or is_decided,
            )
        else:
            told = replace(
                seen.instance,
                token=request.token,
                offer=request.offer,
                tags=tags,
                is_decided=is_decided or seen.instance.is_decided,
            )
        return self._register.add(sale.scope, told, self._clock.now())

    def _wanted(self, request: LaunchRequest, sale: GcpSale, name: str) -> dict[str, Any]:
        """The parameters of the insert. All but these the template says."""
        offer, pool = sale.offer, sale.pool
        machine_type = offer.instance_type.partition("+")[0]
        tags = self._tags(request, sale)
        resource = compute_v1.Instance(
            name=name,
            description=description_of(tags),
            machine_type=f"zones/{offer.zone}/machineTypes/{machine_type}",
            labels={**self._settings.labels, **labels_of(tags)},
        )
        if offer.purchase is Purchase.FLEX_START:
            wait = compute_v1.Duration(seconds=QUEUE_SECONDS)
            resource.params = compute_v1.InstanceParams(request_valid_for_duration=wait)
        template = template_of(pool, offer.purchase)
        attempt = self._attempts.get(request.token, 0)
        body = compute_v1.Instance.to_json(resource, sort_keys=True)
        told = repr((offer.zone, template, body, attempt))
        return {
            "instance_resource": resource,
            "source_instance_template": template,
            "request_id": str(uuid.uuid5(_REQUESTS, told)),
        }

    def _tags(self, request: LaunchRequest, sale: GcpSale) -> dict[str, str]:
        return {
            **request.tags,
            DEPLOYMENT_TAG: self._settings.deployment,
            POOL_TAG: sale.pool_name,
            TOKEN_TAG: request.token,
            OFFER_TAG: request.offer,
        }

    def _count_attempt(self, token: str) -> None:
        """Compute Engine would repeat this answer to its request id; the next is another."""
        self._attempts[token] = self._attempts.pop(token, 0) + 1
        while len(self._attempts) > _MOST_ATTEMPTS_KNOWN:
            self._attempts.popitem(last=False)
