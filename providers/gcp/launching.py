"""Launches: one insert for each request, of an instance named by the request's token.

Names are unique in a zone, so a request is never bought twice. Compute Engine refuses a second
instance of the name, and the first instance's labels show its owner. For about an hour, Compute
Engine also recognises a repeated request id and returns the first result.
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
from providers.gcp.errors import ALREADY_EXISTS, Call, failure, is_gone, is_taken
from providers.gcp.records import Records
from providers.gcp.replies import (
    DescribedInstance,
    description_of,
    instance_id,
    labels_of,
    seconds_of,
    told_instance,
)
from providers.gcp.settings import CallTimeouts, GcpSale, GcpSettings, template_of
from providers.gcp.user_data import BucketUserData

_log = logging.getLogger(__name__)

_MAX_COUNTED_TOKENS: Final = 4096
# Maximum time for which Compute Engine keeps a request in its queue.
QUEUE_SECONDS: Final = 7200
# Namespace of Castor's request ids, which are UUIDs of version 5.
_REQUEST_NAMESPACE: Final = uuid.UUID("6f0d3c1e-5a0f-4c5e-9b8e-2f6b6a1d7c55")


class Launching:
    """Sender of launches, which also resolves launches of unknown outcome."""

    def __init__(
        self,
        settings: GcpSettings,
        calls: ProjectCalls,
        register: Register,
        records: Records,
        patience: CallTimeouts,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._register = register
        self._user_data = BucketUserData(settings, calls)
        self._patience = patience
        self._clock = clock
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._records = records
        now_seconds = clock.now()
        # With the time of the last try, which may lie ahead where the clock was set back.
        self._unknown = {
            instance.id: (instance, min(sent_seconds, now_seconds))
            for instance, sent_seconds in records.launches()
        }

    def launch(self, request: LaunchRequest, sale: GcpSale) -> CloudInstance:
        """Launch an instance, or return the instance that this token launched.

        Raises:
            ProviderError: see `Provider.launch`. After any error but `Unavailable`, nothing was
                launched and the token may be used again.
        """
        name = self.name_of(request)
        self._user_data.put(sale, name, request.user_data)
        sent = self._as_sent(request, sale, name)
        had_no_reply = sent.id in self._unknown  # the outcome of a retry does not tell it
        self._records.keep_launch(sent, self._clock.now())
        try:
            launched = self._launched(request, sale, name)
        except Unavailable:
            self._unknown[sent.id] = sent, self._clock.now()
            raise
        except ProviderError:
            if not had_no_reply:
                self.resolve(sent.id)
            raise
        if not had_no_reply:
            self._records.keep_launched(launched)
        return launched

    def _launched(self, request: LaunchRequest, sale: GcpSale, name: str) -> CloudInstance:
        """Send a launch, and return the instance once the outcome is known.

        Raises:
            ProviderError: see `launch`.
        """
        zone, parameters = sale.offer.zone, self._parameters(request, sale, name)
        requested_seconds = self._clock.now()
        try:
            operation = self._calls.insert(zone, sale.pool_name, **parameters)
        except Unavailable as error:
            if not is_taken(error.__cause__):
                raise
            return self._existing(request, sale, name)
        if operation.insert_time:
            with readable(f"{zone}: instances.insert"):
                requested_seconds = seconds_of(operation.insert_time)
        return self._follow(operation, request, sale, requested_seconds)

    def unknown(self, asked_seconds: float) -> list[CloudInstance]:
        """Return the launches without a reply that a list requested at `asked_seconds` must show.

        Each stands as an instance without a launch time, whether it exists or not.
        """
        return [
            instance
            for instance, sent_seconds in list(self._unknown.values())
            if asked_seconds - sent_seconds >= self._patience.visible_seconds
        ]

    def resolve(self, instance_id: str) -> None:
        """Drop a launch from the unknown ones, because its outcome is known."""
        self._unknown.pop(instance_id, None)
        self._records.drop_launch(instance_id)

    def name_of(self, request: LaunchRequest) -> str:
        """Return the instance's name for a request, the same in each try."""
        identifying = (self._settings.deployment, *sorted(request.tags.items()), request.token)
        digest = hashlib.sha256(repr(identifying).encode()).hexdigest()[:24]
        return f"{self._settings.prefix}{digest}"

    def _follow(
        self, operation: Any, request: LaunchRequest, sale: GcpSale, requested_seconds: float
    ) -> CloudInstance:
        """Follow a launch until its outcome is known or `CallTimeouts.launch_seconds` have passed.

        The outcome is known once the instance has capacity or is queued, or the launch has failed.
        Later lists resolve the rest.
        """
        zone, name = sale.offer.zone, self.name_of(request)
        until_seconds = self._clock.monotonic() + self._patience.launch_seconds
        while True:
            if self._is_name_taken(operation, request, sale):
                return self._existing(request, sale, name)
            seen = self._described(zone, name)
            is_decided = operation.status == compute_v1.Operation.Status.DONE
            is_late = self._clock.monotonic() >= until_seconds
            if is_decided or is_late or (seen is not None and seen.is_settled):
                return self._register_launch(seen, request, sale, requested_seconds, is_decided)
            self._clock.sleep(self._patience.look_seconds)
            try:
                operation = self._calls.operation(zone, operation.name)
            except ProviderError as error:
                _log.info("%s is requested but can't be followed yet: %s", name, error)
                return self._register_launch(seen, request, sale, requested_seconds)

    def _is_name_taken(self, operation: Any, request: LaunchRequest, sale: GcpSale) -> bool:
        """Return whether the launch failed because the name already exists.

        Raises:
            ProviderError: the launch failed for another reason; nothing was launched.
        """
        call = Call(sale.offer.zone, "instances.insert", sale.pool_name)
        translated = failure(operation, call)
        if translated is None:
            return False
        self._count_attempt(request.token)
        if operation.error.errors[0].code in ALREADY_EXISTS:
            return True
        # The operation proves that nothing was launched; a failed call with this code does not.
        raise (
            UnknownRefusal(str(translated)) if isinstance(translated, Unavailable) else translated
        )

    def _existing(self, request: LaunchRequest, sale: GcpSale, name: str) -> CloudInstance:
        """Return the instance that already has the name.

        Raises:
            PermissionDenied: the instance is not this request's.
            Unavailable: the instance can't be read yet, or is being deleted.
        """
        zone = sale.offer.zone
        seen = self._described(zone, name)
        if seen is None:
            raise Unavailable(f"{zone}: {name} exists but can't be read yet: retry")
        tags = seen.instance.tags
        own_tags = (request.tags[CONTROLLER_TAG], request.token)
        if (tags.get(CONTROLLER_TAG), seen.instance.token) != own_tags:
            raise PermissionDenied(
                f"{zone}: {name} belongs to another deployment or request: delete or rename it"
            )
        return self._register.add(sale.scope, seen.instance, self._clock.now())

    def _described(self, zone: str, name: str) -> DescribedInstance | None:
        """Return the instance as Compute Engine describes it; None if it can't be read."""
        try:
            description = self._calls.instance(zone, name)
            with readable(f"{zone}: instances.get"):
                return told_instance(description, zone)
        except ProviderError as error:
            if not is_gone(error.__cause__):
                _log.info("%s can't be read yet: %s", name, error)
            return None

    def _register_launch(
        self,
        seen: DescribedInstance | None,
        request: LaunchRequest,
        sale: GcpSale,
        requested_seconds: float,
        is_decided: bool = False,
    ) -> CloudInstance:
        """Register and return the instance as described; pending or queued if it can't be read.

        `is_decided` is True if the insert operation has succeeded.
        """
        tags = self._tags(request, sale)
        is_queued = sale.offer.purchase is Purchase.FLEX_START
        if seen is None:
            instance = CloudInstance(
                id=instance_id(sale.offer.zone, self.name_of(request)),
                token=request.token,
                offer=request.offer,
                state=CloudState.QUEUED if is_queued else CloudState.PENDING,
                tags=tags,
                launched_seconds=None if is_queued else requested_seconds,
                is_decided=is_queued or is_decided,
            )
        else:
            instance = replace(
                seen.instance,
                token=request.token,
                offer=request.offer,
                tags=tags,
                is_decided=is_decided or seen.instance.is_decided,
            )
        return self._register.add(sale.scope, instance, self._clock.now())

    def _parameters(self, request: LaunchRequest, sale: GcpSale, name: str) -> dict[str, Any]:
        """Return the parameters of the insert; the template sets all others."""
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
        identifying = repr((offer.zone, template, body, attempt))
        return {
            "instance_resource": resource,
            "source_instance_template": template,
            "request_id": str(uuid.uuid5(_REQUEST_NAMESPACE, identifying)),
        }

    def _as_sent(self, request: LaunchRequest, sale: GcpSale, name: str) -> CloudInstance:
        """Return the instance of a launch whose outcome is unknown."""
        return CloudInstance(
            id=instance_id(sale.offer.zone, name),
            token=request.token,
            offer=request.offer,
            state=CloudState.QUEUED,
            tags=self._tags(request, sale),
            launched_seconds=None,
        )

    def _tags(self, request: LaunchRequest, sale: GcpSale) -> dict[str, str]:
        return {
            **request.tags,
            DEPLOYMENT_TAG: self._settings.deployment,
            POOL_TAG: sale.pool_name,
            TOKEN_TAG: request.token,
            OFFER_TAG: request.offer,
        }

    def _count_attempt(self, token: str) -> None:
        """Count an answer, so that the next try has another request id.

        Compute Engine would repeat its answer to the same request id.
        """
        self._attempts[token] = self._attempts.pop(token, 0) + 1
        while len(self._attempts) > _MAX_COUNTED_TOKENS:
            self._attempts.popitem(last=False)
