"""The calls of one region: which client makes them, how often, and what their failure means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import boto3
from botocore.config import Config

from autoscaler.clock import Clock
from autoscaler.domain.errors import Throttled, Unavailable
from providers.aws.errors import CALL_ERRORS, Call, provider_error
from providers.aws.quick_lists import read_lists_quickly
from providers.aws.settings import AwsSettings, Patience
from providers.cloud.budget import CallBudget, Rate

Reply = Mapping[str, Any]

# EC2's documented buckets are 100 and 20 a second for what only reads; what changes has 50 and 5,
# and less where it is dear. Half of each is ours.
_READS: Final = Rate(50, 10)
_CHANGES: Final = Rate(25, 2.5)
_UNCOUNTED: Final = Rate(300, 100)
_RATES: Final = {
    "CreateFleet": _CHANGES,
    "TerminateInstances": Rate(50, 2.5),
    "ListServiceQuotas": Rate(5, 1),
    "GetProducts": Rate(10, 5),
    "ReceiveMessage": _UNCOUNTED,
    "DeleteMessageBatch": _UNCOUNTED,
    "PutObject": _UNCOUNTED,
}

PAGE: Final = 1000
# The price list has one endpoint for all regions.
_PRICING_REGION: Final = "us-east-1"


def call_budget(clock: Clock) -> CallBudget:
    """How often AWS may be called."""
    return CallBudget(clock, _RATES, _READS)


class RegionCalls:
    """Makes every call to AWS that concerns one region.

    What changes something is sent once: botocore would send a launch again for want of capacity,
    and a lost reply is found out about with the same token by whoever asked. What only reads is
    sent again by botocore, but for price lists, which may be out of reach for good.
    """

    def __init__(
        self,
        region: str,
        settings: AwsSettings,
        patience: Patience,
        session: boto3.session.Session,
        budget: CallBudget,
    ) -> None:
        self.region = region
        self._budget = budget
        once = Config(
            retries={"total_max_attempts": 1},
            connect_timeout=patience.connect_seconds,
            read_timeout=patience.answer_seconds,
            s3={"addressing_style": "path" if settings.endpoint_url else "auto"},
        )
        retries = {"total_max_attempts": patience.read_attempts, "mode": patience.read_mode}
        again = once.merge(Config(retries=retries))

        def client(service: str, config: Config, at: str = region) -> Any:
            return session.client(
                service, region_name=at, endpoint_url=settings.endpoint_url, config=config
            )

        self._ordering = client("ec2", once)
        self._reading = client("ec2", again)
        read_lists_quickly(self._reading)
        self._queue = client("sqs", again)
        self._files = client("s3", again)
        self._quotas = client("service-quotas", again)
        self._pricing = client("pricing", once, _PRICING_REGION)

    def create_fleet(self, pool: str, **parameters: Any) -> Reply:
        """Launch. Sent once, if a token is there now.

        Raises:
            ProviderError: what the failure means.
        """
        call = Call(self.region, "CreateFleet", pool)
        return self._make(self._ordering.create_fleet, call, parameters, can_wait=False)

    def terminate(self, instance_ids: list[str]) -> Reply:
        """End instances. Only `ending` calls this.

        Raises:
            ProviderError: what the failure means.
        """
        call = Call(self.region, "TerminateInstances")
        parameters = {"InstanceIds": instance_ids}
        return self._make(self._ordering.terminate_instances, call, parameters)

    def describe(self, action: str, **parameters: Any) -> Reply:
        """One reply of one of EC2's actions that change nothing.

        Raises:
            ProviderError: what the failure means.
        """
        name = _method_name(action)
        return self._make(getattr(self._reading, name), Call(self.region, action), parameters)

    def pages(self, action: str, **parameters: Any) -> Iterator[Reply]:
        """All replies of such an action, page by page.

        Raises:
            ProviderError: what the failure means; what came before is not the whole.
        """
        token: str | None = None
        while True:
            following = {} if token is None else {"NextToken": token}
            page = self.describe(action, MaxResults=PAGE, **parameters, **following)
            yield page
            before, token = token, page.get("NextToken") or None
            if token is None:
                return
            if token == before:
                raise Unavailable(f"{self.region}: {action}: its pages do not end")

    def quotas(self) -> Iterator[Reply]:
        """Pages of EC2's quotas."""
        token: dict[str, str] = {}
        while True:
            call = Call(self.region, "ListServiceQuotas")
            page = self._make(
                self._quotas.list_service_quotas, call, {"ServiceCode": "ec2", **token}
            )
            yield page
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}

    def products(self, **parameters: Any) -> Reply:
        """What the price list has."""
        call = Call(self.region, "GetProducts")
        return self._make(self._pricing.get_products, call, parameters)

    def receive(self, queue_url: str, redelivery_seconds: int) -> Reply:
        """Up to ten messages, which nobody else gets for some time."""
        parameters = {
            "QueueUrl": queue_url,
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": redelivery_seconds,
            "WaitTimeSeconds": 0,
        }
        call = Call(self.region, "ReceiveMessage")
        return self._make(self._queue.receive_message, call, parameters)

    def forget(self, queue_url: str, handles: list[str]) -> Reply:
        """Delete up to ten messages."""
        entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)]
        parameters = {"QueueUrl": queue_url, "Entries": entries}
        call = Call(self.region, "DeleteMessageBatch")
        return self._make(self._queue.delete_message_batch, call, parameters)

    def put(self, bucket: str, key: str, text: str) -> None:
        """Write an object of S3."""
        call = Call(self.region, "PutObject")
        parameters = {"Bucket": bucket, "Key": key, "Body": text.encode()}
        self._make(self._files.put_object, call, parameters)

    def _make(self, method: Any, call: Call, parameters: Reply, can_wait: bool = True) -> Reply:
        permit = self._budget.wait if can_wait else self._budget.take
        permit(call.region, call.action)
        try:
            reply: Reply = method(**parameters)
        except CALL_ERRORS as error:
            meant = provider_error(error, call)
            if isinstance(meant, Throttled):
                self._budget.was_throttled(call.region, call.action)
            raise meant from error
        return reply


def _method_name(action: str) -> str:
    letters = (f"_{letter.lower()}" if letter.isupper() else letter for letter in action)
    return "".join(letters).lstrip("_")
