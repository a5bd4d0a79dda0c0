"""Launches: one instant fleet of one instance for each order.

EC2 knows an order again by its client token, and yields the instance that it yielded before. So
the token is a hash of all that could differ, and what is sent with it is the same each time: what
an instance finds at its start goes another way (`Parcels`), for a join token is new at each try.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from autoscaler.clock import Clock
from autoscaler.domain.errors import (
    NotFound,
    ProviderError,
    Throttled,
    Unavailable,
    UnknownRefusal,
)
from autoscaler.domain.instance import CloudInstance, CloudState, LaunchRequest
from autoscaler.domain.offer import Purchase
from providers.aws.calls import RegionCalls, Reply
from providers.aws.errors import Call, error_code, refusal
from providers.aws.replies import instances_in, told_instance
from providers.aws.settings import AwsSale, AwsSettings
from providers.cloud.register import Register
from providers.cloud.replies import readable
from providers.cloud.tags import DEPLOYMENT_TAG, OFFER_TAG, POOL_TAG, TOKEN_TAG

_log = logging.getLogger(__name__)

_MOST_ATTEMPTS_KNOWN: Final = 4096
_MISMATCH: Final = "IdempotentParameterMismatch"
_ENDED: Final = "IdempotentInstanceTerminated"


class Parcels(Protocol):
    """Brings an instance what it is to find at its start."""

    def put(self, sale: AwsSale, token: str, user_data: str) -> None:
        """Lay it down where the instance that carries `token` will look."""
        ...


class Launching:
    """Sends launches and finds out what came of them."""

    def __init__(
        self,
        settings: AwsSettings,
        calls: Mapping[str, RegionCalls],
        register: Register,
        parcels: Parcels,
        look: Callable[[str, str], CloudInstance | None],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._register = register
        self._parcels = parcels
        self._look = look
        self._clock = clock
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._mismatched_seconds: dict[str, float] = {}

    def launch(
        self, request: LaunchRequest, sale: AwsSale, visible_seconds: float
    ) -> CloudInstance:
        """Launch, or find what this token launched.

        Raises:
            ProviderError: as `Provider.launch`. After any but `Unavailable`, nothing was launched
                and the token may be used again.
        """
        self._parcels.put(sale, request.token, request.user_data)
        try:
            return self._send(request, sale)
        except Unavailable as error:
            if error_code(error.__cause__) not in (_MISMATCH, _ENDED):
                raise
            return self._known_to_ec2(request, sale, visible_seconds, error)

    def _send(self, request: LaunchRequest, sale: AwsSale) -> CloudInstance:
        calls = self._calls[sale.pool.region]
        reply = calls.create_fleet(sale.pool_name, **self._parameters(request, sale))
        with readable(f"{sale.pool.region}: CreateFleet"):
            ids = [one for part in reply.get("Instances", ()) for one in part["InstanceIds"]]
        if not ids:
            refused = _fleet_refusal(reply, Call(calls.region, "CreateFleet", sale.pool_name))
            self._count_attempt(request.token)
            raise refused
        return self._seen(calls, ids[0], request, sale)

    def _seen(
        self, calls: RegionCalls, instance_id: str, request: LaunchRequest, sale: AwsSale
    ) -> CloudInstance:
        """As EC2 tells of it; pending from now on where it does not yet."""
        seen: CloudInstance | None = None
        try:
            reply = calls.describe("DescribeInstances", InstanceIds=[instance_id])
            with readable(f"{calls.region}: DescribeInstances"):
                seen = next((told_instance(told) for told in instances_in(reply)), None)
        except ProviderError as error:
            _log.info("%s is launched and can't be looked at yet: %s", instance_id, error)
        now_seconds = self._clock.now()
        if seen is None:
            seen = CloudInstance(
                id=instance_id,
                token=request.token,
                offer=request.offer,
                state=CloudState.PENDING,
                tags={},
                launched_seconds=now_seconds,
            )
        told = replace(  # its tags may come to be seen later than it does
            seen,
            token=request.token,
            offer=request.offer,
            tags={**self._tags(request, sale), **seen.tags},
        )
        return self._register.add(calls.region, told, now_seconds)

    def _known_to_ec2(
        self, request: LaunchRequest, sale: AwsSale, visible_seconds: float, error: Unavailable
    ) -> CloudInstance:
        """EC2 knows the client token from another order, or the instance has ended.

        Raises:
            Unavailable: what came of that order may be too young to be listed.
            Throttled: nothing came of it; the next try has another client token.
            NotFound: an instance came of it, and is no more.
        """
        found = self._look(sale.pool.region, request.token)
        if found is not None:
            self._mismatched_seconds.pop(request.token, None)
            return self._register.add(sale.scope, found, self._clock.now())
        if error_code(error.__cause__) == _ENDED:
            raise NotFound(f"{error}: it ended so long ago that EC2 no longer lists it")
        now_seconds = self._clock.now()
        first_seconds = self._mismatched_seconds.setdefault(request.token, now_seconds)
        if now_seconds - first_seconds < visible_seconds:
            raise error
        self._mismatched_seconds.pop(request.token, None)
        self._count_attempt(request.token)
        raise Throttled(f"{error}: nothing came of that order, and it is sent anew")

    def _parameters(self, request: LaunchRequest, sale: AwsSale) -> dict[str, Any]:
        pool, offer = sale.pool, sale.offer
        is_spot = offer.purchase is Purchase.SPOT
        template = {
            "LaunchTemplateId": pool.launch_template.id,
            "Version": pool.launch_template.version,
        }
        subnet = self._settings.regions[pool.region].subnets[offer.zone]
        override = {"InstanceType": offer.instance_type, "SubnetId": subnet}
        tags = [
            {"Key": key, "Value": value}
            for key, value in sorted(self._tags(request, sale).items())
        ]
        tagged = ["fleet", "instance", "volume", *(["spot-instances-request"] if is_spot else [])]
        options: dict[str, Any] = (
            {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}}
            if is_spot
            else {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}
        )
        return {
            "Type": "instant",
            "ClientToken": self._client_token(request, sale),
            "LaunchTemplateConfigs": [
                {"LaunchTemplateSpecification": template, "Overrides": [override]}
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": offer.purchase.value,
            },
            "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in tagged],
            **options,
        }

    def _tags(self, request: LaunchRequest, sale: AwsSale) -> dict[str, str]:
        return {
            **self._settings.tags,
            **request.tags,
            DEPLOYMENT_TAG: self._settings.deployment,
            POOL_TAG: sale.pool_name,
            TOKEN_TAG: request.token,
            OFFER_TAG: request.offer,
        }

    def _client_token(self, request: LaunchRequest, sale: AwsSale) -> str:
        offer = sale.offer
        told = (
            *(self._settings.deployment, *sorted(request.tags.items()), request.token),
            *(offer.instance_type, offer.zone, offer.purchase.value, sale.pool_name),
            self._attempts.get(request.token, 0),
        )
        return hashlib.sha256(repr(told).encode()).hexdigest()

    def _count_attempt(self, token: str) -> None:
        """EC2 has answered this client token, without an instance; the next is another.

        Not after an exception: EC2 has nothing to repeat then. The count is lost with this
        process, and the next one hears the old answer first.
        """
        self._attempts[token] = self._attempts.pop(token, 0) + 1
        while len(self._attempts) > _MOST_ATTEMPTS_KNOWN:
            self._attempts.popitem(last=False)


def _fleet_refusal(reply: Reply, call: Call) -> ProviderError:
    """What a fleet without an instance says.

    Raises:
        Unavailable: nothing, so that it is not known whether it has one.
    """
    with readable(str(call)):
        told = [(one["ErrorCode"], one.get("ErrorMessage") or "") for one in reply["Errors"]]
        code, message = told[0]
    meant = refusal(code, message, call)
    if isinstance(meant, Unavailable):
        # Nothing was launched, which is more than is known after a call that failed with it.
        return UnknownRefusal(str(meant))
    return meant
