"""Options of `castor check`. The command imports `run` when called."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Exit, Option

from autoscaler.cli.options import Json

Pools = Annotated[
    list[str],
    Argument(
        help="Pools in a cloud, as for castor serve --pools: a file, ssm:/NAME or gs://BUCKET/NAME."
    ),
]
Host = Annotated[
    str,
    Option(help="Address at which instances will reach the controller, as castor serve has it."),
]


def check(pools: Pools, host: Host = "controller", as_json: Json = False) -> None:
    """Check pools before the first job: credentials, offers, prices, quotas.

    Only reads: nothing is launched, changed or stored. The checks use your own credentials, or
    those of the machine that runs the controller. Exit status 1: a check failed.
    """
    from autoscaler.cli.check import run
    from autoscaler.clock import SystemClock

    findings = run.check_sources(pools, host, SystemClock())
    run.print_findings(findings, as_json)
    if any(finding.verdict is run.CheckResult.FAILED for finding in findings):
        raise Exit(1)
