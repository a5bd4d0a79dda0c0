"""Options of `castor check`. The command imports `run` when called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, confirm

from autoscaler.cli.options import Json

if TYPE_CHECKING:
    from autoscaler.domain.offer import Offer

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


Account = Annotated[
    bool,
    Option(
        "--account",
        help="Also launch the cheapest instance once, for at most $1, and end it. Asks first.",
    ),
]
Yes = Annotated[bool, Option("--yes", help="With --account: do not ask.")]


def check(
    pools: Pools,
    host: Host = "controller",
    account: Account = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Check pools: credentials, offers, prices and quotas.

    Only reads, without --account: nothing is launched, changed or stored. The checks use your own
    credentials, or those of the machine that runs the controller. Exit status 1: a check failed.
    """
    from autoscaler.cli.check import run
    from autoscaler.cli.check.findings import CheckResult
    from autoscaler.cli.check.trial_launch import trial_usd
    from autoscaler.clock import SystemClock
    from autoscaler.domain.errors import SpecError

    if yes and not account:
        raise SpecError("answers the question of --account: add that option", "--yes")

    def consents(offer: Offer) -> bool:
        question = f"Launch {offer.id} and end it, for at most ${trial_usd(offer):.2f}?"
        return yes or confirm(question, err=True)

    findings = run.check_sources(pools, host, SystemClock(), consents if account else None)
    run.print_findings(findings, as_json)
    if any(finding.verdict is CheckResult.FAILED for finding in findings):
        raise Exit(1)
