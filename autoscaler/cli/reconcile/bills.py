"""Cloud accounts whose bills `castor reconcile` compares with the ledger, and their wording."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final, Protocol

from autoscaler.clock import Clock
from autoscaler.domain.spending import AccountCost
from autoscaler.extras import from_extras


class AccountBill(Protocol):
    """Bill of a cloud account."""

    @property
    def asked_usd(self) -> Decimal:
        """US dollars that the queries for this bill have cost so far."""
        ...

    def costs(self, deployment: str, first: date, last: date) -> tuple[AccountCost, ...]:
        """Return the costs of a deployment from `first` to `last` (UTC days, inclusive).

        Raises:
            ProviderError: the cloud refuses the query or does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class BillWords:
    """Wording of messages about the bill of one cloud.

    Attributes:
        cloud: name of the company that bills.
        tag: tag of a deployment's resources, with a `{deployment}` field.
        extras: resources beside instances that the bill and the ledger contain.
        nothing: remedies for a bill without any cost of the deployment.
        less: causes of a bill that is below the ledger.
        asked: sentence on the cost of the query, with a `{usd}` field.
    """

    cloud: str
    tag: str
    extras: str
    nothing: str
    less: str
    asked: str


@dataclass(frozen=True, slots=True)
class Account:
    """Cloud account with a bill.

    Attributes:
        words: wording of messages about the bill.
        has: function that returns whether an offer is billed to this account.
        open_bill: function that returns the bill.
    """

    words: BillWords
    has: Callable[[str], bool]
    open_bill: Callable[[], AccountBill]


_AWS: Final = BillWords(
    cloud="AWS",
    tag="castor:deployment={deployment}",
    extras="volumes and addresses",
    nothing="activate castor:deployment and castor:controller-of as cost allocation tags "
    "(Billing, Cost allocation tags; they appear after a day, and can be backfilled), or name "
    "another deployment, or set another AWS_PROFILE.",
    less="days before the tag was activated, and spot instances that EC2 reclaimed in their first "
    "hour, which is free.",
    asked="The query to Cost Explorer cost {usd}.",
)
_GCP: Final = BillWords(
    cloud="Google",
    tag="castor-deployment={deployment}",
    extras="disks and addresses",
    nothing="billing lines are exported up to a day late, and only since the export was enabled; "
    "wait a day, or name another deployment, or the table of the billing account that pays for "
    "its project.",
    less="days before the export was enabled, lines that are not exported yet, and discounts for "
    "sustained or committed use.",
    asked="The query to BigQuery cost {usd}; a month's first TiB of queries is free.",
)


def aws_account() -> Account:
    """Return the AWS account of the default credentials.

    Raises:
        SpecError: the extra aws is not installed.
    """
    with from_extras("aws", "reconcile", ", or name Google Cloud's export with --table"):
        from providers.aws.cost_report import CostReport, is_of_aws
    return Account(_AWS, is_of_aws, CostReport)


def gcp_account(table: str, payer: str | None, clock: Clock) -> Account:
    """Return the Google Cloud account whose bill is exported to a BigQuery table.

    Args:
        table: ``PROJECT.DATASET.TABLE``.
        payer: project that pays for the query; None: the project of the table.
        clock: source of the current time.

    Raises:
        SpecError: the extra gcp is not installed, or `table` or `payer` is malformed.
    """
    with from_extras("gcp", "--table", ", or leave it out to compare with AWS"):
        from providers.gcp.cost_report import is_of_gcp, open_report, parse_payer, parse_table
    export = parse_table(table)
    project = parse_payer(payer, export)
    return Account(_GCP, is_of_gcp, lambda: open_report(export, project, clock))
