"""Settings of the GCP provider: resources and caps that Terraform defines.

The settings are JSON, in a file or a Cloud Storage object, and state their `schema` version.
Everything that a retried launch must repeat exactly is either in the settings or in the request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from autoscaler.domain.offer import Purchase
from autoscaler.spec.forms import Form, one_or_many
from autoscaler.spec.job_form import Count, Text
from autoscaler.spec.quantities import Duration
from providers.cloud.forms import (
    BootMinutes,
    Money,
    MoneyOrNothing,
    Name,
    Schema,
    Url,
    matching,
    require_ground,
    require_reservation,
)
from providers.cloud.sales import Sale

_MAX_LABELS: Final = 48  # Compute Engine accepts 64 labels; Castor's own labels need the rest
_RESERVED_PREFIXES: Final = ("castor", "goog")
REGION: Final = r"[a-z]+(-[a-z]+)+\d{1,2}"
PROJECT: Final = r"[a-z][a-z0-9-]{4,28}[a-z0-9]"
_LABEL: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    if len(labels) > _MAX_LABELS:
        raise ValueError(f"{len(labels)} labels are too many: at most {_MAX_LABELS}")
    for key, value in labels.items():
        if key.startswith(_RESERVED_PREFIXES):
            raise ValueError(f'"{key}" begins with a reserved prefix: choose another key')
        if not _LABEL.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise ValueError(
                f'"{key:.40}": a label has at most 63 lower-case letters, digits, - and _'
            )
    return labels


ReservationName = Annotated[str, matching(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "my-reservation")]
Project = Annotated[str, matching(PROJECT, "my-project-123")]
# IAM conditions compare the beginning of instances' names, which contain it: hence no hyphens. Ids
# of service accounts contain it and have at most 30 characters: hence 12.
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
Labels = Annotated[dict[str, str], AfterValidator(_check_labels)]


class AcceleratorForm(Form):
    """Accelerators that a pool attaches to n1 machines: the field `accelerator`.

    Machines of all other families include their accelerators.
    """

    type: AcceleratorType
    count: Count


class RegionForm(Form):
    """Resources of one region that its pools share: an entry of `regions`."""

    zones: Annotated[tuple[ZoneName, ...], Field(min_length=1)]
    user_data: Place
    subscription: Subscription | None = None
    jobs: Place | None = None
    job_account: Text | None = None

    @model_validator(mode="after")
    def _check_job_account(self) -> Self:
        if (self.jobs is None) != (self.job_account is None):
            missing = "job_account" if self.job_account is None else "jobs"
            raise ValueError(f"{missing} is missing: jobs and job_account go together")
        return self


class PoolForm(Form):
    """Instances of one template for each purchase, and their caps: an entry of `pools`.

    `extras_usd_per_hour` is charged for each instance in addition to its price, from launch to
    end. `boot` is an assumption for plans. `boot_minutes` is a limit: the controller ends an
    instance that has not joined by then, and so does the instance itself. A pool of purchase
    `reserved` launches into its `reservation` only, which the template targets.
    """

    region: RegionName
    templates: dict[Purchase, TemplateLink]
    machine_types: Annotated[tuple[MachineType, ...], Field(min_length=1)]
    accelerator: AcceleratorForm | None = None
    purchases: Annotated[tuple[Purchase, ...], one_or_many(), Field(min_length=1)]
    zones: tuple[ZoneName, ...] | None = None
    max_instances: Count
    max_usd_per_hour: Money
    boot: Duration = 180.0
    boot_minutes: BootMinutes = 20
    extras_usd_per_hour: MoneyOrNothing = Decimal(0)
    reservation: ReservationName | None = None

    @model_validator(mode="after")
    def _check_reservation(self) -> Self:
        require_reservation(self.purchases, self.reservation, self.machine_types, self.zones)
        return self

    @model_validator(mode="after")
    def _check_templates(self) -> Self:
        missing = [purchase.value for purchase in self.purchases if purchase not in self.templates]
        if missing:
            raise ValueError(f"templates.{missing[0]} is missing: each of purchases needs one")
        return self

    def types(self) -> tuple[str, ...]:
        """Return the instance types, as the catalogue names them."""
        return tuple(self.instance_type(machine) for machine in self.machine_types)

    def instance_type(self, machine_type: str) -> str:
        """Return the catalogue's name of a machine type, with the accelerators of an n1."""
        if self.accelerator is None:
            return machine_type
        kind = self.accelerator.type.removeprefix("nvidia-").removeprefix("tesla-")
        return f"{machine_type}+{self.accelerator.count}x{kind}"


class GcpSettings(Form):
    """Whole settings document. IAM conditions identify the deployment by `deployment`."""

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
        """Zones of all regions."""
        return frozenset(zone for region in self.regions.values() for zone in region.zones)

    @model_validator(mode="after")
    def _check_regions_of_zones(self) -> Self:
        for name, region in self.regions.items():
            for zone in region.zones:
                if region_of(zone) != name:
                    raise ValueError(f"regions.{name}.zones: {zone} is not in {name}")
        return self

    @model_validator(mode="after")
    def _check_zones_of_pools(self) -> Self:
        require_ground(
            self.pools,
            {name: region.zones for name, region in self.regions.items()},
            "is not in regions.{region}.zones",
        )
        return self

    @property
    def prefix(self) -> str:
        """Prefix of the names of this deployment's instances."""
        return f"castor-{self.deployment}-"

    @property
    def whom(self) -> str:
        """Audience of instances' identity tokens."""
        return self.audience or f"castor-{self.deployment}"

    def zones_of(self, pool: PoolForm) -> tuple[str, ...]:
        """Return the zones of a pool: those it names, or all zones of its region."""
        return pool.zones or self.regions[pool.region].zones


GcpSale = Sale[PoolForm]


def region_of(zone: str) -> str:
    """Return the region of a zone: ``us-central1`` for ``us-central1-a``."""
    return zone.rpartition("-")[0]


def template_of(pool: PoolForm, purchase: Purchase) -> str:
    """Return the template for a pool's instances of one purchase."""
    return pool.templates[purchase]


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """Time limits, refresh intervals and retries of calls. Terraform does not set them.

    Attributes:
        visible_seconds: maximum time for which Compute Engine's lists may omit a new instance.
        launch_seconds: maximum time for which a launch is followed until its outcome is known.
        look_seconds: time between two polls of a launch.
        notice_seconds: maximum time from a preemption notice to the end.
        history_seconds: maximum time for which an ended instance awaits the list of operations
            that has its end.
        prices_seconds: age at which a price is fetched again.
        reservations_seconds: age at which a reservation is fetched again.
        facts_seconds: age at which quotas, machine types and templates are fetched again.
        retry_seconds: minimum time between a failed fetch and the next one.
        answer_seconds: timeout of one call.
        read_seconds: time for which a call that only reads is retried; 0 sends the call once.
    """

    visible_seconds: float = 60.0
    launch_seconds: float = 30.0
    look_seconds: float = 2.0
    notice_seconds: float = 30.0
    history_seconds: float = 600.0
    prices_seconds: float = 3600.0
    reservations_seconds: float = 300.0
    facts_seconds: float = 3600.0
    retry_seconds: float = 30.0
    answer_seconds: float = 30.0
    read_seconds: float = 20.0
