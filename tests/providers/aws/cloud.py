"""Account of the fake AWS for one test, with the infrastructure that Terraform would create."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import boto3

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.instance import CONTROLLER_TAG, INSTANCE_TAG, JOB_TAG, LaunchRequest
from autoscaler.domain.offer import Purchase
from providers.aws.provider import AwsProvider
from providers.aws.reading import parse_settings
from providers.aws.settings import AwsSettings, CallTimeouts
from providers.base import Provider
from providers.cloud.known_prices import KnownPrices
from tests.conformance.provider import OURS, order
from tests.fakes.aws.proxy import CLOUD_SUFFIX
from tests.fakes.aws.server import FakeAws
from tests.fakes.faults import Faults

START_SECONDS = 1_790_000_000.0
NOTICE_SECONDS = 120.0
REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b")
BUCKET = "castor-test"
SMALL = "gpu/g4dn.xlarge/us-east-1a/on-demand"
SMALL_SPOT = "gpu/g4dn.xlarge/us-east-1a/spot"

QUICK = CallTimeouts(
    visible_seconds=30.0,
    redelivery_seconds=0,
    retry_seconds=2.0,
    connect_seconds=5.0,
    answer_seconds=60.0,
    read_attempts=1,
    read_mode="standard",
)
_KEY = "AKIATEST"


class KeptSession(boto3.session.Session):
    """Session that reuses its clients, because creation is slower than most tests here."""

    def __init__(self, key: str) -> None:
        super().__init__(key, "secret", region_name=REGION)
        self._kept: dict[str, Any] = {}

    def client(self, service_name: str, *arguments: Any, **options: Any) -> Any:
        config = options.get("config")
        settings = (
            None if config is None else sorted(vars(config)["_user_provided_options"].items())
        )
        location = options.get("region_name"), options.get("endpoint_url")
        key = repr((service_name, location, settings))
        if key not in self._kept:
            self._kept[key] = super().client(service_name, *arguments, **options)
        return self._kept[key]


_SESSION = KeptSession(_KEY)
_CLOUD = KeptSession(_KEY + CLOUD_SUFFIX)


class AwsWorld:
    """Account and clock, for `tests.conformance.provider` and the tests of this folder."""

    provider_name = "aws"
    spot_offer = SMALL_SPOT
    launch_action = "CreateFleet"
    list_action = "DescribeInstances"
    end_action = "TerminateInstances"
    denied = ("UnauthorizedOperation", 403)

    def __init__(self, fake: FakeAws, clock: VirtualClock | None = None, **pool: Any) -> None:
        self.url = fake.url
        self.clock = clock or VirtualClock(START_SECONDS)
        self.account = fake.proxy.renew(_KEY, self.clock)
        self.ec2, self.sqs, self.s3 = (self.client(name) for name in ("ec2", "sqs", "s3"))
        self.queue_url = self.sqs.create_queue(QueueName="castor")["QueueUrl"]
        self.document = self._document(pool)
        self.prices: KnownPrices | None = None
        self._due: list[tuple[float, str]] = []

    def client(self, service: str, region: str = REGION) -> Any:
        """Return a client of the cloud itself, whose calls meet no fault."""
        return _CLOUD.client(service, region_name=region, endpoint_url=self.url)

    @property
    def session(self) -> boto3.session.Session:
        return _SESSION

    @property
    def settings(self) -> AwsSettings:
        return parse_settings(json.dumps(self.document), "pools.json")

    def connect(self, controller: str = OURS, patience: CallTimeouts = QUICK) -> AwsProvider:
        return AwsProvider(
            self.settings,
            controller,
            self.clock,
            _SESSION,
            patience=patience,
            prices=self.prices,
        )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Advance the time in steps of seconds until a condition holds."""
        for _ in range(100):
            if condition():
                return
            self.pass_time(5.0)
        raise AssertionError("waited in vain")

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for moment, instance_id in list(self._due):
            if moment <= self.clock.now():
                self._due.remove((moment, instance_id))
                self.take(instance_id)

    def take(self, instance_id: str) -> None:
        """End an instance as the cloud does."""
        self.account.reclaimed.add(instance_id)
        self.ec2.terminate_instances(InstanceIds=[instance_id])

    def exhaust(self, provider: Provider) -> str:
        offer_id = order(provider, "any").offer
        _, kind, zone, purchase = offer_id.split("/")
        self.account.capacity[kind, zone, purchase] = 0
        return offer_id

    def reclaim(self, provider: Provider, instance_id: str) -> None:
        self.announce("EC2 Spot Instance Interruption Warning", {"instance-id": instance_id})
        self._due.append((self.clock.now() + NOTICE_SECONDS, instance_id))

    def announce(self, kind: str, detail: Any, **others: Any) -> None:
        """Send an event to the queue, as EventBridge would."""
        now = datetime.fromtimestamp(self.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {"detail-type": kind, "source": "aws.ec2", "time": now, "detail": detail, **others}
        self.put_message(json.dumps(event))

    def put_message(self, body: str) -> None:
        self.sqs.send_message(QueueUrl=self.queue_url, MessageBody=body)

    def messages_left(self) -> int:
        names = ["ApproximateNumberOfMessages"]
        answer = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])

    @property
    def faults(self) -> Faults:
        return self.account.faults

    @property
    def most_alive(self) -> int:
        return self.account.most_alive

    @property
    def launched(self) -> int:
        return len(self.account.launched_seconds)

    def alive(self) -> list[str]:
        return self.account.alive()

    def is_running(self, instance_id: str) -> bool:
        account = self.account
        return instance_id in account.alive() and not account.is_pending(instance_id)

    def lag(self, lag_seconds: float, boot_seconds: float) -> None:
        self.account.lag_seconds = lag_seconds
        self.account.boot_seconds = boot_seconds

    def remains(self, instance_id: str) -> Sequence[str]:
        return [alive_id for alive_id in self.account.alive() if alive_id == instance_id]

    def request(self, token: str, offer: str = SMALL, controller: str = OURS) -> LaunchRequest:
        tags = {CONTROLLER_TAG: controller, JOB_TAG: "digits", INSTANCE_TAG: f"digits-{token}"}
        return LaunchRequest(token, offer, tags, user_data=f"join {token}")

    def _document(self, pool: dict[str, Any]) -> dict[str, Any]:
        """Return the pools' document as Terraform would write it."""
        zones = [{"Name": "availability-zone", "Values": list(ZONES)}]
        subnets = self.ec2.describe_subnets(Filters=zones)["Subnets"]
        template = self.ec2.create_launch_template(
            LaunchTemplateName="castor",
            LaunchTemplateData={"ImageId": "ami-0123456789abcdef0"},
        )["LaunchTemplate"]
        self.s3.create_bucket(Bucket=f"{BUCKET}-{self.account.number}")
        region = {
            "subnets": {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets},
            "user_data": f"s3://{BUCKET}-{self.account.number}/user-data",
            "queue_url": self.queue_url,
        }
        gpu = {
            "region": REGION,
            "launch_template": {"id": template["LaunchTemplateId"], "version": "1"},
            "instance_types": ["g4dn.xlarge", "g5.xlarge"],
            "purchases": ["on-demand", "spot"],
            "max_instances": 8,
            "max_usd_per_hour": "20",
            **pool,
        }
        return {
            "schema": 1,
            "deployment": "test",
            "regions": {REGION: region},
            "pools": {"gpu": gpu},
            "max_usd_per_hour": "30",
            "endpoint_url": self.url,
        }


def spot_offers(provider: AwsProvider) -> list[str]:
    return [offer.id for offer in provider.offers() if offer.purchase is Purchase.SPOT]


def error_of(call: Callable[[], object]) -> ProviderError:
    """Return the error of a call, which must fail."""
    try:
        call()
    except ProviderError as error:
        return error
    raise AssertionError("the call did not fail")
