"""What this provider is told: the ground that Terraform laid, and the bounds it set.

It arrives as JSON, in a file or an object of Cloud Storage, and says which `schema` it is written
in. Everything that a retry of a launch must repeat word for word is in here or in the order
itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from autoscaler.domain.offer import Purchase
from autoscaler.spec.forms import Form, one_or_many
from autoscaler.spec.job_form import Count, Duration, Text
from providers.cloud.forms import (
    Money,
    MoneyOrNothing,
    Name,
    Schema,
    Url,
    bought,
    matching,
    require_ground,
)
from providers.cloud.sales import Sale

_MOST_LABELS: Final = 48  # Compute Engine takes 64 of a resource; the rest are Castor's own
_RESERVED: Final = ("castor", "goog")
REGION: Final = r"[a-z]+(-[a-z]+)+\d{1,2}"
PROJECT: Final = r"[a-z][a-z0-9-]{4,28}[a-z0-9]"
_LABEL: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")


def _labels(labels: dict[str, str]) -> dict[str, str]:
    if len(labels) > _MOST_LABELS:
        raise ValueError(f"{len(labels)} are too many: at most {_MOST_LABELS}")
    for key, value in labels.items():
        if key.startswith(_RESERVED):
            raise ValueError(f'"{key}" begins with a reserved word: choose another key')
        if not _LABEL.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise ValueError(
                f'"{key:.40}": labels are of lower-case letters, digits, - and _, 63 at most'
            )
    return labels


Bought = Annotated[Purchase, bought(Purchase.ON_DEMAND, Purchase.SPOT, Purchase.FLEX_START)]
Project = Annotated[str, matching(PROJECT, "my-project-123")]
# Names of instances begin with it, and conditions of IAM go by that: hence no hyphens. Ids of
# service accounts, of which it is a part, have 30 characters: hence 12.
Deployment = Annotated[str, matching(r"[a-z][a-z0-9]{0,11}", "prod")]
RegionName = Annotated[str, matching(REGION, "us-central1")]
ZoneName = Annotated[str, matching(rf"{REGION}-[a-z]", "us-central1-a")]
MachineType = Annotated[str, matching(r"[a-z]\w*(-\w+)+", "g2-standard-4")]
AcceleratorType = Annotated[str, matching(r"nvidia-[a-z0-9-]+", "nvidia-tesla-t4")]
TemplateLink = Annotated[
    str,
    matching(
        r"projects/[a-z0-9:.-]+/(global|regions/[a-z0-9-]+)/instanceTemplates/[a-z0-9-]+",
        "projects/my-project/global/instanceTemplates/castor-prod-gpu-spot-1",
    ),
]
Place = Annotated[str, matching(r"gs://[a-z0-9._-]{3,222}/.*[^/]", "gs://bucket/prefix")]
Subscription = Annotated[
    str,
    matching(r"projects/[a-z0-9:.-]+/subscriptions/\S+", "projects/my-project/subscriptions/x"),
]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]


class AcceleratorForm(Form):
    """`accelerator` of a pool: what its machines of n1 are given; all others bring their own."""

    type: AcceleratorType
    count: Count


class RegionForm(Form):
    """One of `regions`: what is there once, whatever pools are in it."""

    zones: Annotated[tuple[ZoneName, ...], Field(min_length=1)]
    user_data: Place
    subscription: Subscription | None = None
    jobs: Place | None = None
    job_account: Text | None = None

    @model_validator(mode="after")
    def _jobs_have_an_account(self) -> Self:
        if (self.jobs is None) != (self.job_account is None):
            missing = "job_account" if self.job_account is None else "jobs"
            raise ValueError(f"{missing} is missing: jobs and job_account go together")
        return self


class PoolForm(Form):
    """One of `pools`: instances of one template for each purchase, and their bounds.

    `extras_usd_per_hour` is what is billed beside each instance as long as it is there.
    """

    region: RegionName
    templates: dict[Bought, TemplateLink]
    machine_types: Annotated[tuple[MachineType, ...], Field(min_length=1)]
    accelerator: AcceleratorForm | None = None
    purchases: Annotated[tuple[Bought, ...], one_or_many(), Field(min_length=1)]
    zones: tuple[ZoneName, ...] | None = None
    max_instances: Count
    max_usd_per_hour: Money
    boot: Duration = 180.0
    extras_usd_per_hour: MoneyOrNothing = Decimal(0)

    @model_validator(mode="after")
    def _purchases_have_templates(self) -> Self:
        missing = [one.value for one in self.purchases if one not in self.templates]
        if missing:
            raise ValueError(f"templates.{missing[0]} is missing: each of purchases needs one")
        return self

    def types(self) -> tuple[str, ...]:
        """The instance types, as the catalogue names them."""
        return tuple(self.instance_type(machine) for machine in self.machine_types)

    def instance_type(self, machine_type: str) -> str:
        """As the catalogue names it: an n1 with its accelerators, any other by itself."""
        if self.accelerator is None:
            return machine_type
        kind = self.accelerator.type.removeprefix("nvidia-").removeprefix("tesla-")
        return f"{machine_type}+{self.accelerator.count}x{kind}"


class GcpSettings(Form):
    """The whole document. `deployment` is what conditions of IAM know this deployment by."""

    written_in: Annotated[Schema, Field(alias="schema")]
    cloud: Literal["gcp"] = "gcp"
    deployment: Deployment
    project: Project
    audience: Text | None = None
    regions: Annotated[dict[RegionName, RegionForm], Field(min_length=1)]
    pools: Annotated[dict[Name, PoolForm], Field(min_length=1)]
    max_usd_per_hour: Money
    launches_per_minute: Count = 60
    labels: Labels = Field(default_factory=dict)
    prices_from: Text | None = None
    endpoint_url: Url | None = None

    @property
    def zones(self) -> frozenset[str]:
        """The zones of all regions."""
        return frozenset(zone for region in self.regions.values() for zone in region.zones)

    @model_validator(mode="after")
    def _zones_are_in_their_region(self) -> Self:
        for name, region in self.regions.items():
            for zone in region.zones:
                if region_of(zone) != name:
                    raise ValueError(f"regions.{name}.zones: {zone} is not in {name}")
        return self

    @model_validator(mode="after")
    def _pools_have_ground(self) -> Self:
        require_ground(
            self.pools,
            {name: region.zones for name, region in self.regions.items()},
            "is not in regions.{region}.zones",
        )
        return self

    @property
    def prefix(self) -> str:
        """What the names of this deployment's instances begin with."""
        return f"castor-{self.deployment}-"

    @property
    def whom(self) -> str:
        """The audience of instances' identity tokens."""
        return self.audience or f"castor-{self.deployment}"

    def zones_of(self, pool: PoolForm) -> tuple[str, ...]:
        """Where the pool's instances may be: each zone of its region, unless it names some."""
        return pool.zones or self.regions[pool.region].zones


GcpSale = Sale[PoolForm]


def region_of(zone: str) -> str:
    """As ``us-central1`` of ``us-central1-a``."""
    return zone.rpartition("-")[0]


def template_of(pool: PoolForm, purchase: Purchase) -> str:
    """The template that a pool's instances of one purchase are made from."""
    return pool.templates[purchase]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things may take, and how they are asked for. None of it is Terraform's.

    Attributes:
        visible_seconds: for how long Compute Engine may leave a new instance out of its lists.
        launch_seconds: for how long a launch is followed until it is known to have capacity.
        look_seconds: between two looks at a launch.
        notice_seconds: from a preemption to the end; what Compute Engine gives at most.
        prices_seconds: how old a price may become before it is asked for again.
        facts_seconds: the same of quotas, machine types and templates.
        retry_seconds: after a failure to learn these, ask again no sooner.
        answer_seconds: how long one call may take.
        read_seconds: for so long a call that changes nothing is sent again; 0: it is sent once.
    """

    visible_seconds: float = 60.0
    launch_seconds: float = 30.0
    look_seconds: float = 2.0
    notice_seconds: float = 30.0
    prices_seconds: float = 3600.0
    facts_seconds: float = 3600.0
    retry_seconds: float = 30.0
    answer_seconds: float = 30.0
    read_seconds: float = 20.0
