"""What this provider is told: the ground that Terraform laid, and the bounds it set.

It arrives as JSON, in a file or a parameter of SSM, and says which `schema` it is written in.
Everything that a retry of a launch must repeat word for word is in here or in the order itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from autoscaler.spec.forms import Form, one_or_many
from autoscaler.spec.job_form import Count, Duration, Text
from providers.cloud.forms import (
    Bought,
    Money,
    MoneyOrNothing,
    Name,
    Schema,
    Url,
    matching,
    require_ground,
)
from providers.cloud.sales import Sale

_MOST_TAGS: Final = 40  # EC2 takes 50 of a resource; the rest are Castor's own
_RESERVED_TAGS: Final = ("aws:", "castor:")
REGION: Final = r"[a-z]{2,3}(-[a-z]+)+-\d{1,2}"


def _tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > _MOST_TAGS:
        raise ValueError(f"{len(tags)} are too many: at most {_MOST_TAGS}")
    for key, value in tags.items():
        if key.lower().startswith(_RESERVED_TAGS):
            raise ValueError(f'"{key}" begins with a reserved word: choose another key')
        if not key or len(key) > 128 or len(value) > 256:
            raise ValueError(f'"{key:.40}" is too long: keys have 128 characters, values 256')
    return tags


RegionName = Annotated[str, matching(REGION, "us-east-1")]
TemplateId = Annotated[str, matching(r"lt-[0-9a-f]{8,17}", "lt-0123456789abcdef0")]
TemplateVersion = Annotated[
    str, matching(r"[1-9]\d*", "3: a number, since a retry has to launch the same")
]
SubnetId = Annotated[str, matching(r"subnet-[0-9a-f]{8,17}", "subnet-0123456789abcdef0")]
Place = Annotated[str, matching(r"s3://[a-z0-9.-]{3,63}/.*[^/]", "s3://bucket/prefix")]
RoleArn = Annotated[
    str, matching(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", "arn:aws:iam::1234:role/job")
]
Account = Annotated[str, matching(r"\d{12}", "123456789012")]
Tags = Annotated[dict[str, str], AfterValidator(_tags)]


class TemplateForm(Form):
    """`launch_template` of a pool."""

    id: TemplateId
    version: TemplateVersion


class RegionForm(Form):
    """One of `regions`: what is there once, whatever pools are in it."""

    subnets: Annotated[dict[Text, SubnetId], Field(min_length=1)]
    user_data: Place
    queue_url: Url | None = None
    identity_certificate: Text | None = None
    jobs: Place | None = None
    job_role: RoleArn | None = None

    @model_validator(mode="after")
    def _jobs_have_a_role(self) -> Self:
        if (self.jobs is None) != (self.job_role is None):
            missing = "job_role" if self.job_role is None else "jobs"
            raise ValueError(f"{missing} is missing: jobs and job_role go together")
        return self


class PoolForm(Form):
    """One of `pools`: instances of one launch template, and their bounds.

    `extras_usd_per_hour` is what is billed beside each instance as long as it is there.
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
    extras_usd_per_hour: MoneyOrNothing = Decimal(0)


AwsSale = Sale[PoolForm]


class AwsSettings(Form):
    """The whole document. `deployment` is what policies of IAM know this deployment by."""

    written_in: Annotated[Schema, Field(alias="schema")]
    cloud: Literal["aws"] = "aws"
    deployment: Name
    account: Account | None = None
    regions: Annotated[dict[RegionName, RegionForm], Field(min_length=1)]
    pools: Annotated[dict[Name, PoolForm], Field(min_length=1)]
    max_usd_per_hour: Money
    launches_per_minute: Count = 60
    tags: Tags = Field(default_factory=dict)
    has_internet: bool = True
    prices_from: Text | None = None
    endpoint_url: Url | None = None

    @model_validator(mode="after")
    def _pools_have_ground(self) -> Self:
        require_ground(
            self.pools,
            {name: region.subnets for name, region in self.regions.items()},
            "has no subnet in regions.{region}",
        )
        return self

    @property
    def zones(self) -> frozenset[str]:
        """The zones of all regions, each of which has a subnet."""
        return frozenset(zone for region in self.regions.values() for zone in region.subnets)

    def zones_of(self, pool: PoolForm) -> tuple[str, ...]:
        """Where the pool's instances may be: each zone that has a subnet, unless it names some."""
        return pool.zones or tuple(self.regions[pool.region].subnets)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things may take, and how they are asked for. None of it is Terraform's.

    Attributes:
        visible_seconds: for how long EC2 may leave a new instance out of its lists.
        notice_seconds: from a spot interruption warning to the end; EC2's promise.
        redelivery_seconds: when a message that was not handled may be read again.
        prices_seconds: how old a spot price may become before it is asked for again.
        facts_seconds: the same of quotas, types and on-demand prices.
        retry_seconds: after a failure to learn these, ask again no sooner.
        connect_seconds, answer_seconds: how long one call may take.
        read_attempts: how often a call that changes nothing is sent.
        read_mode: how botocore spaces them.
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
