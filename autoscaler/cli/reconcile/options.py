"""Options of `castor reconcile`. The command imports `run` when called."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.options import Json

Deployment = Annotated[
    str,
    Argument(
        help="Name of the deployment: the value of the tag castor:deployment (AWS) or of the "
        "label castor-deployment (Google Cloud)."
    ),
]
First = Annotated[
    str | None,
    Option("--from", help="First day (UTC), as 2026-11-01; default: 13 days before --to."),
]
Last = Annotated[str | None, Option("--to", help="Last day (UTC), inclusive; default: yesterday.")]
Cloud = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Provider whose bill is compared. Default: gcp with --table, aws without.",
    ),
]
Table = Annotated[
    str | None,
    Option(
        "--table",
        metavar="PROJECT.DATASET.TABLE",
        help="Compare with Google Cloud instead of AWS. The table is the BigQuery export of Cloud "
        "Billing, as my-project.billing.gcp_billing_export_v1_0123AB_4567CD_89EF01.",
    ),
]
Payer = Annotated[
    str | None,
    Option(
        "--project",
        metavar="PROJECT",
        help="Project that runs and pays for the BigQuery query; default: the table's project.",
    ),
]


Keep = Annotated[
    bool,
    Option(
        "--keep",
        help="Also keep the comparison on the controller, whose page of costs shows it. This "
        "needs the role operator.",
    ),
]


def reconcile(
    deployment: Deployment,
    first: First = None,
    last: Last = None,
    cloud: Cloud = None,
    table: Table = None,
    payer: Payer = None,
    keep: Keep = False,
    as_json: Json = False,
) -> None:
    """Compare the ledger with the bill of a cloud.

    The cloud is AWS, Google Cloud, or another provider with bills. Costs are compared day by day.
    The bill is read with your own credentials. AWS charges about $0.02 for the query, which needs
    the permission ce:GetCostAndUsage (docs/aws.md). BigQuery rarely charges more than a cent; its
    query needs the roles jobUser and dataViewer (docs/gcp.md).
    """
    from autoscaler.cli.reconcile import run
    from autoscaler.clock import SystemClock
    from autoscaler.domain.errors import SpecError
    from autoscaler.wire.connection import connect
    from providers.bill import BillSource
    from providers.registry import plugin_of

    clock = SystemClock()
    period = run.parse_period(first, last, clock.now())
    if payer is not None and table is None:
        raise SpecError("is for Google Cloud only: name the export with --table", "--project")
    name = cloud or ("aws" if table is None else "gcp")
    account = plugin_of(name, "--cloud").open_account(BillSource(table, payer), clock)
    client = connect()
    report = run.reconcile_with(account, client, deployment, period, clock.now())
    run.print_report(report, as_json)
    if keep:
        run.keep_report(report, client, name)
