"""Launches by instant fleets: one fleet of one instance for each request.

EC2 recognises a repeated request by its client token and returns the same instance. The token is a
hash of everything that could differ, and a repeated request sends the same parameters. User data
is not among them (`UserDataStore` carries it), since its join token is new in each try. The zones
beside the planned one are not in the token: with others a repeated request is refused, and never
bought a second time.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from autoscaler.clock import Clock
from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    ProviderError,
    Throttled,
    Unavailable,
    UnknownRefusal,
)
from autoscaler.domain.instance import CONTROLLER_TAG, CloudInstance, CloudState, LaunchRequest
from autoscaler.domain.offer import Purchase
from providers.aws.calls import RegionCalls, Reply
from providers.aws.errors import Call, error_code, refusal
from providers.aws.replies import instances_in, told_instance
from providers.aws.reservations import CAPACITY_BLOCK
from providers.aws.settings import AwsSale, AwsSettings
from providers.cloud.register import Register
from providers.cloud.replies import readable
from providers.cloud.tags import DEPLOYMENT_TAG, OFFER_TAG, POOL_TAG, TOKEN_TAG

_log = logging.getLogger(__name__)

_MAX_COUNTED_TOKENS: Final = 4096
# What EC2's documentation of CreateFleet lists for instant fleets. Spot requests are not in it.
_TAGGED_KINDS: Final = ("fleet", "instance", "volume", "network-interface")
# Allocation strategies by type of capacity; a Capacity Block takes none. Of several spot zones EC2
# knows which have most; on demand, at one price, the planned zone comes first.
_STRATEGIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "spot": {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}},
    "on-demand": {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}},
}
_IN_ORDER: Final = {"OnDemandOptions": {"AllocationStrategy": "prioritized"}}
_MISMATCH: Final = "IdempotentParameterMismatch"
_ENDED: Final = "IdempotentInstanceTerminated"


class UserDataStore(Protocol):
    """Store from which an instance reads its user data at its start."""

    def put(self, sale: AwsSale, token: str, user_data: str) -> None:
        """Write the user data where the instance that carries `token` reads it."""
        ...


_REHEARSAL: Final = "castor-check"
# Code of the error with which EC2 answers a dry run that would succeed.
_PERMITTED: Final = "DryRunOperation"


class Launching:
    """Sender of launches, which also resolves launches of unknown outcome.

    `look` finds a listed instance by its region and token. `user_data` stores user data.
    """

    def __init__(
        self,
        settings: AwsSettings,
        calls: Mapping[str, RegionCalls],
        register: Register,
        user_data: UserDataStore,
        look: Callable[[str, str], CloudInstance | None],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._register = register
        self._user_data = user_data
        self._find_listed = look
        self._clock = clock
        self._attempts: OrderedDict[str, int] = OrderedDict()
        self._mismatched_seconds: dict[str, float] = {}

    def launch(
        self, request: LaunchRequest, sales: Sequence[AwsSale], visible_seconds: float
    ) -> CloudInstance:
        """Launch an instance, or return the instance that this token launched.

        `sales` are what the order names: types and pools are the same, and the planned one is the
        first.

        Raises:
            ProviderError: see `Provider.launch`. After any error but `Unavailable`, nothing was
                launched and the token may be used again.
        """
        sale = sales[0]
        self._user_data.put(sale, request.token, request.user_data)
        try:
            return self._send(request, sales)
        except Unavailable as error:
            if error_code(error.__cause__) not in (_MISMATCH, _ENDED):
                raise
            return self._resolve_used_token(request, sale, visible_seconds, error)

    def rehearse(self, sale: AwsSale) -> None:
        """Ask EC2 with a dry run whether a launch would be permitted.

        Raises:
            ProviderError: EC2 would refuse the launch, or does not answer.
        """
        request = LaunchRequest(_REHEARSAL, sale.offer.id, {CONTROLLER_TAG: _REHEARSAL}, "")
        parameters = self._parameters(request, [sale])
        calls = self._calls[sale.pool.region]
        try:
            calls.create_fleet(sale.pool_name, **parameters, DryRun=True)
        except ProviderError as error:
            if error_code(error.__cause__) != _PERMITTED:
                raise
        else:
            raise Unavailable(f"{sale.pool.region}: CreateFleet: no answer to a dry run")

    def _send(self, request: LaunchRequest, sales: Sequence[AwsSale]) -> CloudInstance:
        sale = sales[0]
        calls = self._calls[sale.pool.region]
        reply = calls.create_fleet(sale.pool_name, **self._parameters(request, sales))
        with readable(f"{sale.pool.region}: CreateFleet"):
            launched = [
                (instance_id, _subnet(instances))
                for instances in reply.get("Instances", ())
                for instance_id in instances["InstanceIds"]
            ]
        if not launched:
            call = Call(calls.region, "CreateFleet", sale.pool_name)
            error = _fleet_refusal(reply, self._subnet_of(sale), call)
            self._count_attempt(request.token)
            raise error
        instance_id, subnet = launched[0]
        bought = (asked for asked in sales if self._subnet_of(asked) == subnet)
        return self._register_launch(calls, instance_id, request, sale, next(bought, sale))

    def _register_launch(
        self,
        calls: RegionCalls,
        instance_id: str,
        request: LaunchRequest,
        sale: AwsSale,
        bought: AwsSale,
    ) -> CloudInstance:
        """Register and return the instance as EC2 describes it, or as pending if unlisted."""
        instance: CloudInstance | None = None
        try:
            reply = calls.describe("DescribeInstances", InstanceIds=[instance_id])
            with readable(f"{calls.region}: DescribeInstances"):
                instance = next(
                    (told_instance(description) for description in instances_in(reply)), None
                )
        except ProviderError as error:
            _log.info("%s is launched but can't be described yet: %s", instance_id, error)
        now_seconds = self._clock.now()
        if instance is None:
            instance = CloudInstance(
                id=instance_id,
                token=request.token,
                offer=bought.offer.id,
                state=CloudState.PENDING,
                tags={},
                launched_seconds=now_seconds,
            )
        description = replace(  # EC2 may show an instance's tags later than the instance
            instance,
            token=request.token,
            offer=bought.offer.id,
            tags={**self._tags(request, sale), **instance.tags},
        )
        return self._register.add(calls.region, description, now_seconds)

    def _resolve_used_token(
        self, request: LaunchRequest, sale: AwsSale, visible_seconds: float, error: Unavailable
    ) -> CloudInstance:
        """Resolve a client token that EC2 has seen in another request or whose instance has ended.

        Raises:
            Unavailable: the result of the earlier request may not be listed yet.
            Throttled: the earlier request launched nothing; the next try has another client token.
            NotFound: the earlier request launched an instance that has ended.
        """
        listed = self._find_listed(sale.pool.region, request.token)
        if listed is not None:
            self._mismatched_seconds.pop(request.token, None)
            return self._register.add(sale.scope, listed, self._clock.now())
        if error_code(error.__cause__) == _ENDED:
            raise NotFound(f"{error}: the instance has ended, and EC2 no longer lists it")
        now_seconds = self._clock.now()
        first_seconds = self._mismatched_seconds.setdefault(request.token, now_seconds)
        if now_seconds - first_seconds < visible_seconds:
            raise error
        self._mismatched_seconds.pop(request.token, None)
        self._count_attempt(request.token)
        raise Throttled(f"{error}: that request launched nothing; a new request replaces it")

    def _subnet_of(self, sale: AwsSale) -> str:
        return self._settings.regions[sale.pool.region].subnets[sale.offer.zone]

    def _parameters(self, request: LaunchRequest, sales: Sequence[AwsSale]) -> dict[str, Any]:
        sale = sales[0]
        pool = sale.pool
        template = {
            "LaunchTemplateId": pool.launch_template.id,
            "Version": pool.launch_template.version,
        }
        capacity_type = _capacity_type(sale)
        strategy = _STRATEGIES.get(capacity_type, {})
        overrides: list[dict[str, Any]] = [
            {"InstanceType": asked.offer.instance_type, "SubnetId": self._subnet_of(asked)}
            for asked in sales
        ]
        if len(sales) > 1 and sale.offer.purchase is Purchase.ON_DEMAND:
            strategy = _IN_ORDER
            for priority, override in enumerate(overrides):
                override["Priority"] = float(priority)
        tags = [
            {"Key": key, "Value": value}
            for key, value in sorted(self._tags(request, sale).items())
        ]
        return {
            "Type": "instant",
            "ClientToken": self._client_token(request, sale),
            "LaunchTemplateConfigs": [
                {"LaunchTemplateSpecification": template, "Overrides": overrides}
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": capacity_type,
            },
            "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in _TAGGED_KINDS],
            **strategy,
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
        identifying = (
            *(self._settings.deployment, *sorted(request.tags.items()), request.token),
            *(offer.instance_type, offer.zone, offer.purchase.value, sale.pool_name),
            self._attempts.get(request.token, 0),
        )
        return hashlib.sha256(repr(identifying).encode()).hexdigest()

    def _count_attempt(self, token: str) -> None:
        """Count an answer without an instance, so that the next try has another client token.

        An exception is not counted, since EC2 then has no answer to repeat. The counts are lost
        when the process ends; the next process then receives the old answer once.
        """
        self._attempts[token] = self._attempts.pop(token, 0) + 1
        while len(self._attempts) > _MAX_COUNTED_TOKENS:
            self._attempts.popitem(last=False)


def _capacity_type(sale: AwsSale) -> str:
    """Return the type of capacity of a fleet.

    The template of a reserved pool targets the reservation. A fleet for an on-demand capacity
    reservation is on-demand, without `CapacityReservationOptions`: by botocore's model the usage
    strategy `use-capacity-reservations-first` would buy on-demand what the reservation lacks.
    """
    if sale.offer.purchase is not Purchase.RESERVED:
        return sale.offer.purchase.value
    return CAPACITY_BLOCK if sale.pool.capacity_block else Purchase.ON_DEMAND.value


def _subnet(entry: Mapping[str, Any]) -> str | None:
    """Return the subnet of an entry of a fleet's reply; None if the entry names none."""
    overrides = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    subnet: str | None = overrides.get("SubnetId")
    return subnet


def _fleet_refusal(reply: Reply, planned_subnet: str, call: Call) -> ProviderError:
    """Return the error for a fleet reply without an instance: that of the planned subnet, if any.

    A refusal for capacity has the open zones of all entries.

    Raises:
        Unavailable: the reply has no error, so the outcome is unknown.
    """
    with readable(str(call)):
        refusals = [
            (
                _subnet(entry) == planned_subnet,
                refusal(entry["ErrorCode"], entry.get("ErrorMessage") or "", call),
            )
            for entry in reply["Errors"]
        ]
        error = next((error for is_planned, error in refusals if is_planned), refusals[0][1])
    if isinstance(error, Unavailable):
        # The reply proves that nothing was launched; a failed call with this code does not.
        return UnknownRefusal(str(error))
    if isinstance(error, InsufficientCapacity):
        others = (other for _, other in refusals if isinstance(other, InsufficientCapacity))
        open_zones = frozenset[str]().union(*(other.open_zones for other in others))
        return InsufficientCapacity(str(error), open_zones)
    return error
