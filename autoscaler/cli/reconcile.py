"""The words of `castor reconcile`; what it does is in `reconciliation`, imported when it is
called."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.options import Json

Deployment = Annotated[
    str,
    Argument(help="As Terraform was told: the value of castor:deployment, or castor-deployment."),
]
First = Annotated[
    str | None,
    Option("--from", help="The first day (UTC), as 2026-11-01; two weeks by default."),
]
Last = Annotated[str | None, Option("--to", help="The last day; yesterday by default.")]
Table = Annotated[
    str | None,
    Option(
        "--table",
        metavar="PROJECT.DATASET.TABLE",
        help="Compare with Google Cloud, not AWS: where Cloud Billing exports to, such as "
        "my-project.billing.gcp_billing_export_v1_0123AB_4567CD_89EF01.",
    ),
]
Payer = Annotated[
    str | None,
    Option(
        "--project",
        metavar="PROJECT",
        help="The project that asks BigQuery and pays for it; the table's by default.",
    ),
]


def reconcile(
    deployment: Deployment,
    first: First = None,
    last: Last = None,
    table: Table = None,
    payer: Payer = None,
    as_json: Json = False,
) -> None:
    """Compare the ledger with what AWS billed, or with --table Google Cloud, day by day.

    Your own credentials ask. AWS takes $0.02 for it, and they need ce:GetCostAndUsage
    (docs/aws.md). BigQuery seldom takes a cent, and they need its roles jobUser and dataViewer
    (docs/gcp.md).
    """
    from autoscaler.cli import bills, reconciliation
    from autoscaler.clock import SystemClock
    from autoscaler.domain.errors import SpecError
    from autoscaler.wire.connection import connect

    clock = SystemClock()
    period = reconciliation.parse_period(first, last, clock.now())
    if payer is not None and table is None:
        raise SpecError("it pays for asking BigQuery: name the export with --table", "--project")
    account = bills.aws_account() if table is None else bills.gcp_account(table, payer, clock)
    report = reconciliation.reconcile_with(account, connect(), deployment, period, clock.now())
    reconciliation.print_report(report, as_json)
