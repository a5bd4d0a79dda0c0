"""Settings of the AWS provider: resources and caps that Terraform defines.

The settings are JSON, in a file or an SSM parameter, and state their `schema` version. Everything
that a retried launch must repeat exactly is either in the settings or in the request.
"""

from __future__ import annotations

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
    bought,
    matching,
    require_ground,
    require_reservation,
)
from providers.cloud.sales import Sale

_MAX_TAGS: Final = 40  # EC2 accepts 50 tags of a resource; Castor's own tags need the rest
_RESERVED_TAGS: Final = ("aws:", "castor:")
REGION: Final = r"[a-z]{2,3}(-[a-z]+)+-\d{1,2}"


def _check_tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > _MAX_TAGS:
        raise ValueError(f"{len(tags)} tags are too many: at most {_MAX_TAGS}")
    for key, value in tags.items():
        if key.lower().startswith(_RESERVED_TAGS):
            raise ValueError(f'"{key}" begins with a reserved prefix: choose another key')
        if not key or len(key) > 128 or len(value) > 256:
            raise ValueError(f'"{key:.40}" is too long: keys have 128 characters, values 256')
    return tags


RegionName = Annotated[str, matching(REGION, "us-east-1")]
TemplateId = Annotated[str, matching(r"lt-[0-9a-f]{8,17}", "lt-0123456789abcdef0")]
TemplateVersion = Annotated[
    str, matching(r"[1-9]\d*", "3: a number, since a retry must launch the same")
]
SubnetId = Annotated[str, matching(r"subnet-[0-9a-f]{8,17}", "subnet-0123456789abcdef0")]
ReservationId = Annotated[str, matching(r"cr-[0-9a-f]{8,17}", "cr-0123456789abcdef0")]
Bought = Annotated[Purchase, bought(Purchase.ON_DEMAND, Purchase.SPOT, Purchase.RESERVED)]
Place = Annotated[str, matching(r"s3://[a-z0-9.-]{3,63}/.*[^/]", "s3://bucket/prefix")]
RoleArn = Annotated[
    str, matching(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", "arn:aws:iam::1234:role/job")
]
Account = Annotated[str, matching(r"\d{12}", "123456789012")]
Tags = Annotated[dict[str, str], AfterValidator(_check_tags)]


class TemplateForm(Form):
    """Launch template of a pool: the field `launch_template`."""

    id: TemplateId
    version: TemplateVersion


class RegionForm(Form):
    """Resources of one region that its pools share: an entry of `regions`."""

    subnets: Annotated[dict[Text, SubnetId], Field(min_length=1)]
    user_data: Place
    queue_url: Url | None = None
    identity_certificate: Text | None = None
    jobs: Place | None = None
    job_role: RoleArn | None = None

    @model_validator(mode="after")
    def _check_job_role(self) -> Self:
        if (self.jobs is None) != (self.job_role is None):
            missing = "job_role" if self.job_role is None else "jobs"
            raise ValueError(f"{missing} is missing: jobs and job_role go together")
        return self


class PoolForm(Form):
    """Instances of one launch template and their caps: an entry of `pools`.

    `extras_usd_per_hour` is charged for each instance in addition to its price, from launch to
    end. `boot` is an assumption for plans. `boot_minutes` is a limit: the controller ends an
    instance that has not joined by then, and so does the instance itself. `network_cards` is the
    number of cards on which the template has an interface.

    A pool of purchase `reserved` launches into its `reservation` only, which the template targets:
    a Capacity Block if `capacity_block` is true, else an on-demand capacity reservation.
    """

    region: RegionName
    launch_template: TemplateForm
    instance_types: Annotated[tuple[Text, ...], Field(min_length=1)]
    purchases: Annotated[
        tuple[Bought, ...],
        one_or_many(),
        Field(min_length=1),
    ]
    zones: tuple[Text, ...] | None = None
    max_instances: Count
    max_usd_per_hour: Money
    boot: Duration = 180.0
    boot_minutes: BootMinutes = 20
    network_cards: Annotated[int, Field(ge=1, le=32)] = 1
    extras_usd_per_hour: MoneyOrNothing = Decimal(0)
    reservation: ReservationId | None = None
    capacity_block: bool = False

    @model_validator(mode="after")
    def _check_reservation(self) -> Self:
        require_reservation(self.purchases, self.reservation, self.instance_types, self.zones)
        if self.capacity_block and self.reservation is None:
            raise ValueError("capacity_block: is for a reservation only: leave it out")
        return self


AwsSale = Sale[PoolForm]


class AwsSettings(Form):
    """Whole settings document.

    IAM policies identify the deployment by `deployment`. Terraform's sweep ends instances that run
    longer than `max_run_hours`; None if there is no such sweep.
    """

    written_in: Annotated[Schema, Field(alias="schema")]
    cloud: Literal["aws"] = "aws"
    deployment: Name
    account: Account | None = None
    regions: Annotated[dict[RegionName, RegionForm], Field(min_length=1)]
    pools: Annotated[dict[Name, PoolForm], Field(min_length=1)]
    max_usd_per_hour: Money
    launches_per_minute: Count = 60
    tags: Tags = Field(default_factory=dict)
    max_run_hours: Annotated[int, Field(ge=1)] | None = None
    has_internet: bool = True
    prices_from: Text | None = None
    endpoint_url: Url | None = None

    @model_validator(mode="after")
    def _check_zones(self) -> Self:
        require_ground(
            self.pools,
            {name: region.subnets for name, region in self.regions.items()},
            "has no subnet in regions.{region}",
        )
        return self

    @property
    def zones(self) -> frozenset[str]:
        """Zones of all regions; each has a subnet."""
        return frozenset(zone for region in self.regions.values() for zone in region.subnets)

    def zones_of(self, pool: PoolForm) -> tuple[str, ...]:
        """Return the zones of a pool: those it names, or all zones of its region with a subnet."""
        return pool.zones or tuple(self.regions[pool.region].subnets)


@dataclass(frozen=True, slots=True)
class CallTimeouts:
    """Time limits, refresh intervals and retries of calls. Terraform does not set them.

    Attributes:
        visible_seconds: maximum time for which EC2's lists may omit a new instance.
        notice_seconds: time from a spot interruption warning to the end, as EC2 promises.
        redelivery_seconds: time after which an unhandled message is delivered again.
        prices_seconds: age at which a spot price or a reservation is fetched again.
        facts_seconds: age at which quotas, types and on-demand prices are fetched again.
        retry_seconds: minimum time between a failed fetch and the next one.
        connect_seconds, answer_seconds: timeouts of one call.
        read_attempts: maximum number of tries of a call that only reads.
        read_mode: botocore's retry mode, which spaces the tries.
    """

    visible_seconds: float = 60.0
    notice_seconds: float = 120.0
    redelivery_seconds: int = 20
    prices_seconds: float = 300.0
    facts_seconds: float = 3600.0
    retry_seconds: float = 30.0
    connect_seconds: float = 5.0
    answer_seconds: float = 30.0
    read_attempts: int = 5
    read_mode: str = "adaptive"
