"""The words of `castor reconcile`; what it does is in `reconciliation`, imported when it is
called."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

Deployment = Annotated[
    str, Argument(help="As Terraform was told: the value of the tag castor:deployment.")
]
First = Annotated[
    str | None,
    Option("--from", help="The first day (UTC), as 2026-11-01; two weeks by default."),
]
Last = Annotated[str | None, Option("--to", help="The last day; yesterday by default.")]
Json = Annotated[bool, Option("--json", help="Print JSON instead, for scripts.")]


def reconcile(
    deployment: Deployment, first: First = None, last: Last = None, as_json: Json = False
) -> None:
    """Compare the ledger with what AWS billed, day by day. Asking AWS costs $0.02.

    Your own credentials ask, and need ce:GetCostAndUsage; see docs/aws.md.
    """
    from autoscaler.cli import reconciliation
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    now_seconds = SystemClock().now()
    period = reconciliation.parse_period(first, last, now_seconds)
    report = reconciliation.reconcile_with_aws(connect(), deployment, period, now_seconds)
    reconciliation.print_report(report, as_json)
