"""Project of the fake Google Cloud for one test, with the infrastructure of Terraform."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from google.auth.credentials import Credentials

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.instance import CONTROLLER_TAG, INSTANCE_TAG, JOB_TAG, LaunchRequest
from autoscaler.domain.offer import Purchase
from providers.base import Provider
from providers.cloud.known_prices import KnownPrices
from providers.gcp.provider import GcpProvider
from providers.gcp.reading import parse_settings
from providers.gcp.records import Records
from providers.gcp.session import Session
from providers.gcp.settings import CallTimeouts, GcpSettings
from tests.conformance.provider import OURS, order
from tests.fakes.faults import Faults
from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.buckets import Bucket
from tests.fakes.gcp.clients import properties
from tests.fakes.gcp.server import FakeGcp
from tests.fakes.gcp.subscriptions import Subscription, publish

START_SECONDS: Final = 1_790_000_000.0
REGION: Final = "us-central1"
ZONES: Final = ("us-central1-a", "us-central1-b")
SMALL: Final = "gpu/g2-standard-4/us-central1-a/on-demand"
SMALL_SPOT: Final = "gpu/g2-standard-4/us-central1-a/spot"
FLEX: Final = "gpu/g2-standard-4/us-central1-a/flex-start"
NOTICE_SECONDS: Final = 30.0

QUICK: Final = CallTimeouts(
    visible_seconds=30.0,
    launch_seconds=4.0,
    look_seconds=1.0,
    retry_seconds=2.0,
    answer_seconds=60.0,
    read_seconds=0.0,
)
_NUMBERS: Final = itertools.count()
_MODELS: Final = {"spot": "SPOT", "on-demand": "STANDARD", "flex-start": "FLEX_START"}


class ServiceAccount(Credentials):  # type: ignore[misc, no-untyped-call]
    """Credentials of a project's service account, as the fake issues them."""

    def __init__(self, project: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.token = f"ya29.castor-test-controller@{project}.iam.gserviceaccount.com"

    def refresh(self, request: object) -> None:
        """Do nothing, because the credentials never expire."""


class GcpWorld:
    """Project and clock, for `tests.conformance.provider` and the tests of this folder."""

    provider_name = "gcp"
    spot_offer = SMALL_SPOT
    launch_action = "compute.instances.insert"
    list_action = "compute.instances.aggregatedList"
    end_action = "compute.instances.delete"
    denied = ("forbidden", 403)

    def __init__(
        self, fake: FakeGcp, kept: Path, clock: VirtualClock | None = None, **pool: Any
    ) -> None:
        self.fake = fake
        self.name = f"castor-test-{next(_NUMBERS)}"
        self.kept = kept / f"{self.name}.sqlite"
        self.clock = clock or VirtualClock(START_SECONDS)
        self.project = fake.front.renew(self.name, self.clock)
        self.project.subscriptions["events"] = Subscription("events", 20.0)
        self.bucket = self.project.buckets[self.name] = Bucket(self.name, self.project)
        self.document = self._document(pool)
        self.prices: KnownPrices | None = None
        self.session = Session(ServiceAccount(self.name), fake.url)

    @property
    def settings(self) -> GcpSettings:
        return parse_settings(json.dumps(self.document), "pools.json")

    def connect(self, controller: str = OURS, patience: CallTimeouts = QUICK) -> GcpProvider:
        return GcpProvider(
            self.settings,
            controller,
            self.clock,
            self.session,
            Records(self.kept, controller),
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
        self.project.now()

    def take(self, instance_id: str) -> None:
        """End an instance as the cloud does, without notice."""
        lifecycle.take(self.project, name_of(instance_id))

    def exhaust(self, provider: Provider) -> str:
        offer_id = order(provider, "any").offer
        _, kind, zone, purchase = offer_id.split("/")
        self.project.capacity[kind, zone, _MODELS[purchase]] = 0
        return offer_id

    def give_capacity(self, offer_id: str, count: int = 1) -> None:
        _, kind, zone, purchase = offer_id.split("/")
        self.project.capacity[kind, zone, _MODELS[purchase]] = count

    def reclaim(self, provider: Provider, instance_id: str) -> None:
        lifecycle.preempt(self.project, name_of(instance_id))

    def put_message(self, body: str) -> None:
        publish(self.project, "events", body)

    def messages_left(self) -> int:
        return len(self.project.subscriptions["events"].messages)

    def alive(self) -> list[str]:
        """Return the ids of billed instances."""
        self.project.now()
        return sorted(
            f"{instance.zone}/{instance.name}"
            for instance in self.project.instances.values()
            if instance.ended_seconds is None
        )

    @property
    def faults(self) -> Faults:
        return self.project.faults

    @property
    def most_alive(self) -> int:
        return self.project.most_alive

    @property
    def launched(self) -> int:
        return sum(instance.running_seconds is not None for instance in self.project.history)

    def is_running(self, instance_id: str) -> bool:
        zone, _, name = instance_id.partition("/")
        instance = self.project.instances.get((zone, name))
        return instance is not None and instance.status == "RUNNING"

    def lag(self, lag_seconds: float, boot_seconds: float) -> None:
        self.project.lag_seconds = lag_seconds
        self.project.staging_seconds = boot_seconds - self.project.provision_seconds

    def remains(self, instance_id: str) -> Sequence[str]:
        return [
            remaining
            for remaining in self.project.remaining()
            if remaining == name_of(instance_id)
        ]

    def request(self, token: str, offer: str = SMALL, controller: str = OURS) -> LaunchRequest:
        tags = {CONTROLLER_TAG: controller, JOB_TAG: "digits", INSTANCE_TAG: f"digits-{token}"}
        return LaunchRequest(token, offer, tags, user_data=f"join {token}")

    def start_data(self, instance_id: str) -> str:
        """Return the start data that the instance would find."""
        stored = self.bucket.objects[f"user-data/{name_of(instance_id)}"]
        return str(stored.content.decode())

    def add_template(self, name: str, **scheduling: Any) -> str:
        """Create a template with a scheduling; return the link to it."""
        template_properties = properties(
            scheduling={"onHostMaintenance": "TERMINATE", **scheduling}
        )
        self.project.templates[name] = {"name": name, "properties": template_properties}
        return f"projects/{self.name}/global/instanceTemplates/{name}"

    def _document(self, pool: dict[str, Any]) -> dict[str, Any]:
        """Return the pools' document as Terraform would write it."""
        ends: dict[str, Any] = {
            "instanceTerminationAction": "DELETE",
            "maxRunDuration": {"seconds": "604800"},
        }
        gpu = {
            "region": REGION,
            "templates": {
                "spot": self.add_template("castor-gpu-spot", provisioningModel="SPOT", **ends),
                "on-demand": self.add_template(
                    "castor-gpu-on-demand", provisioningModel="STANDARD", **ends
                ),
                "flex-start": self.add_template(
                    "castor-gpu-flex-start", provisioningModel="FLEX_START", **ends
                ),
            },
            "machine_types": ["g2-standard-4", "g2-standard-8"],
            "purchases": ["on-demand", "spot"],
            "max_instances": 8,
            "max_usd_per_hour": "20",
            **pool,
        }
        region = {
            "zones": list(ZONES),
            "user_data": f"gs://{self.name}/user-data",
            "subscription": f"projects/{self.name}/subscriptions/events",
        }
        return {
            "schema": 1,
            "cloud": "gcp",
            "deployment": "test",
            "project": self.name,
            "audience": "castor-test",
            "regions": {REGION: region},
            "pools": {"gpu": gpu},
            "max_usd_per_hour": "30",
            "endpoint_url": self.fake.url,
        }


def name_of(instance_id: str) -> str:
    return instance_id.partition("/")[2]


def spot_offers(provider: GcpProvider) -> list[str]:
    return [offer.id for offer in provider.offers() if offer.purchase is Purchase.SPOT]


def error_of(call: Callable[[], object]) -> ProviderError:
    """Return the error of a call, which must fail."""
    try:
        call()
    except ProviderError as error:
        return error
    raise AssertionError("the call did not fail")
