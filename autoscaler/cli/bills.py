"""Whose bills the ledger is compared with: how each is had, and how its cloud speaks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final, Protocol

from autoscaler.clock import Clock
from autoscaler.domain.spending import AccountCost
from autoscaler.extras import from_extras


class Bill(Protocol):
    """The bill of an account, as its cloud tells it."""

    @property
    def asked_usd(self) -> Decimal:
        """What asking has cost so far."""
        ...

    def costs(self, deployment: str, first: date, last: date) -> tuple[AccountCost, ...]:
        """What these days (UTC), the last one included, cost of a deployment.

        Raises:
            ProviderError: its cloud does not tell.
        """
        ...


@dataclass(frozen=True, slots=True)
class BillWords:
    """What one cloud calls things, and where to look if its bill is another one than the ledger.

    Attributes:
        cloud: who calls figures estimates.
        tag: what a deployment is known by.
        extras: what is billed beside instances, and in the ledger, too.
        nothing: what may be done if the bill has nothing of the deployment.
        less: what else may make it less than the ledger.
        asked: what asking has cost.
    """

    cloud: str
    tag: str
    extras: str
    nothing: str
    less: str
    asked: str


@dataclass(frozen=True, slots=True)
class Account:
    """Whose bill it is; `has` says of an offer whether it is bought there."""

    words: BillWords
    has: Callable[[str], bool]
    open_bill: Callable[[], Bill]


_AWS: Final = BillWords(
    cloud="AWS",
    tag="castor:deployment={deployment}",
    extras="volumes and addresses",
    nothing="activate castor:deployment and castor:controller-of as cost allocation tags "
    "(Billing, Cost allocation tags; they show after a day, and can be backfilled), or name "
    "another deployment or AWS_PROFILE.",
    less="days before the tag was activated, and spot that EC2 took back in its first hour, which "
    "is free.",
    asked="To ask Cost Explorer cost {usd}.",
)
_GCP: Final = BillWords(
    cloud="Google",
    tag="castor-deployment={deployment}",
    extras="disks and addresses",
    nothing="lines come a day late, and none before the export was enabled; or name another "
    "deployment, or the table of the billing account that pays for its project.",
    less="days before the export was enabled, lines that are still to come, and discounts for "
    "sustained or committed use.",
    asked="To ask BigQuery cost {usd}, or nothing within the month's first TiB.",
)


def aws_account() -> Account:
    """That of the credentials at hand.

    Raises:
        SpecError: the extra aws is not installed.
    """
    with from_extras("aws", "reconcile", ", or name Google Cloud's export with --table"):
        from providers.aws.cost_report import CostReport, is_of_aws
    return Account(_AWS, is_of_aws, CostReport)


def gcp_account(table: str, payer: str | None, clock: Clock) -> Account:
    """The one whose bill is exported to a table, for the credentials at hand.

    Args:
        table: ``PROJECT.DATASET.TABLE``.
        payer: the project that pays for asking; the table's unless given.
        clock: the time.

    Raises:
        SpecError: the extra gcp is not installed, or one of these is none.
    """
    with from_extras("gcp", "--table", ", or leave it out to compare with AWS"):
        from providers.gcp.cost_report import is_of_gcp, open_report, parse_payer, parse_table
    export = parse_table(table)
    project = parse_payer(payer, export)
    return Account(_GCP, is_of_gcp, lambda: open_report(export, project, clock))
