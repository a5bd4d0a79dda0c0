"""API calls of one region: their clients, their rate limits and their errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import boto3
from botocore.config import Config

from autoscaler.clock import Clock
from autoscaler.domain.errors import Throttled, Unavailable
from providers.aws.errors import CALL_ERRORS, Call, provider_error
from providers.aws.quick_lists import read_lists_quickly
from providers.aws.settings import AwsSettings, CallTimeouts
from providers.cloud.budget import CallRateLimiter, Rate

Reply = Mapping[str, Any]

# EC2 documents token buckets of 100 calls and 20 a second for reads, 50 and 5 for changes, less
# for expensive calls. Castor uses half of each.
_READS: Final = Rate(50, 10)
_CHANGES: Final = Rate(25, 2.5)
_PRACTICALLY_UNLIMITED: Final = Rate(300, 100)
_RATES: Final = {
    "CreateFleet": _CHANGES,
    "TerminateInstances": Rate(50, 2.5),
    "ListServiceQuotas": Rate(5, 1),
    "GetProducts": Rate(10, 5),
    "ReceiveMessage": _PRACTICALLY_UNLIMITED,
    "DeleteMessageBatch": _PRACTICALLY_UNLIMITED,
    "PutObject": _PRACTICALLY_UNLIMITED,
}

PAGE: Final = 1000
# One endpoint serves the price list of all regions.
_PRICING_REGION: Final = "us-east-1"


def call_budget(clock: Clock) -> CallRateLimiter:
    """Return the client-side rate limits of AWS calls."""
    return CallRateLimiter(clock, _RATES, _READS)


class RegionCalls:
    """Client of all AWS calls that concern one region.

    A call that changes something is sent once. botocore would repeat a launch that lacks capacity,
    and the caller resolves a lost reply with the same token. botocore repeats calls that only
    read, except calls of the price list, which may be permanently unreachable.
    """

    def __init__(
        self,
        region: str,
        settings: AwsSettings,
        patience: CallTimeouts,
        session: boto3.session.Session,
        budget: CallRateLimiter,
    ) -> None:
        self.region = region
        self._budget = budget
        single_try = Config(
            retries={"total_max_attempts": 1},
            connect_timeout=patience.connect_seconds,
            read_timeout=patience.answer_seconds,
            s3={"addressing_style": "path" if settings.endpoint_url else "auto"},
        )
        retries = {"total_max_attempts": patience.read_attempts, "mode": patience.read_mode}
        with_retries = single_try.merge(Config(retries=retries))

        def client(service: str, config: Config, at: str = region) -> Any:
            return session.client(
                service, region_name=at, endpoint_url=settings.endpoint_url, config=config
            )

        self._launch_client = client("ec2", single_try)
        self._read_client = client("ec2", with_retries)
        read_lists_quickly(self._read_client)
        self._sqs_client = client("sqs", with_retries)
        self._s3_client = client("s3", with_retries)
        self._quota_client = client("service-quotas", with_retries)
        self._pricing_client = client("pricing", single_try, _PRICING_REGION)

    def create_fleet(self, pool: str, **parameters: Any) -> Reply:
        """Launch instances. The call is sent once, and only if its bucket has a token now.

        Raises:
            ProviderError: the call failed; its type gives the cause.
        """
        call = Call(self.region, "CreateFleet", pool)
        return self._make(self._launch_client.create_fleet, call, parameters, can_wait=False)

    def purchase_block(self, **parameters: Any) -> Reply:
        """Buy a Capacity Block. The call is sent once; only `blocks` calls this method.

        Raises:
            ProviderError: the call failed; its type gives the cause.
        """
        call = Call(self.region, "PurchaseCapacityBlock")
        return self._make(self._launch_client.purchase_capacity_block, call, parameters)

    def terminate(self, instance_ids: list[str]) -> Reply:
        """End instances. Only `ending` calls this method.

        Raises:
            ProviderError: the call failed; its type gives the cause.
        """
        call = Call(self.region, "TerminateInstances")
        parameters = {"InstanceIds": instance_ids}
        return self._make(self._launch_client.terminate_instances, call, parameters)

    def describe(self, action: str, **parameters: Any) -> Reply:
        """Return one reply of an EC2 action that only reads.

        Raises:
            ProviderError: the call failed; its type gives the cause.
        """
        name = _method_name(action)
        return self._make(getattr(self._read_client, name), Call(self.region, action), parameters)

    def pages(self, action: str, **parameters: Any) -> Iterator[Reply]:
        """Yield all pages of the reply of an EC2 action that only reads.

        Raises:
            ProviderError: the call failed; earlier pages are incomplete.
        """
        call = Call(self.region, action)
        method = getattr(self._read_client, _method_name(action))
        return self._pages(method, call, {"MaxResults": PAGE, **parameters})

    def quotas(self) -> Iterator[Reply]:
        """Yield all pages of EC2's quotas.

        Raises:
            ProviderError: the call failed; earlier pages are incomplete.
        """
        call = Call(self.region, "ListServiceQuotas")
        return self._pages(self._quota_client.list_service_quotas, call, {"ServiceCode": "ec2"})

    def products(self, **parameters: Any) -> Iterator[Reply]:
        """Yield all pages of the price list's products.

        Raises:
            ProviderError: the call failed; earlier pages are incomplete.
        """
        call = Call(self.region, "GetProducts")
        return self._pages(self._pricing_client.get_products, call, parameters)

    def receive(self, queue_url: str, redelivery_seconds: int) -> Reply:
        """Return up to ten messages, hidden from other receivers for `redelivery_seconds`."""
        parameters = {
            "QueueUrl": queue_url,
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": redelivery_seconds,
            "WaitTimeSeconds": 0,
        }
        call = Call(self.region, "ReceiveMessage")
        return self._make(self._sqs_client.receive_message, call, parameters)

    def forget(self, queue_url: str, handles: list[str]) -> Reply:
        """Delete up to ten messages."""
        entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)]
        parameters = {"QueueUrl": queue_url, "Entries": entries}
        call = Call(self.region, "DeleteMessageBatch")
        return self._make(self._sqs_client.delete_message_batch, call, parameters)

    def put(self, bucket: str, key: str, text: str) -> None:
        """Write an object to S3."""
        call = Call(self.region, "PutObject")
        parameters = {"Bucket": bucket, "Key": key, "Body": text.encode()}
        self._make(self._s3_client.put_object, call, parameters)

    def _pages(self, method: Any, call: Call, parameters: Reply) -> Iterator[Reply]:
        """Yield the pages of a reply, one call each."""
        following: dict[str, str] = {}
        seen_tokens: set[str] = set()
        while True:
            page = self._make(method, call, {**parameters, **following})
            yield page
            token = page.get("NextToken")
            if not token:
                return
            if token in seen_tokens:
                raise Unavailable(f"{call}: the reply repeats a page token")
            seen_tokens.add(token)
            following = {"NextToken": token}

    def _make(self, method: Any, call: Call, parameters: Reply, can_wait: bool = True) -> Reply:
        permit = self._budget.wait if can_wait else self._budget.take
        permit(call.region, call.action)
        try:
            reply: Reply = method(**parameters)
        except CALL_ERRORS as error:
            translated = provider_error(error, call)
            if isinstance(translated, Throttled):
                self._budget.was_throttled(call.region, call.action)
            raise translated from error
        return reply


def _method_name(action: str) -> str:
    letters = (f"_{letter.lower()}" if letter.isupper() else letter for letter in action)
    return "".join(letters).lstrip("_")
