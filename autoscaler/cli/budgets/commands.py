"""Commands `castor budget`. They import what they need when called."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from typer import Argument, Option, Typer

from autoscaler.cli.options import Json

budget = Typer(
    help="Set, list and remove budgets that several jobs share. They are those of a person, "
    "a team, a study, or of all jobs.",
    no_args_is_help=True,
)

Scope = Annotated[str, Argument(help="person:NAME, team:NAME, study:NAME, or fleet for all jobs.")]


@budget.command("set")
def put(
    scope: Scope,
    month: Annotated[
        str | None, Option(help="US dollars in each calendar month.", metavar="USD")
    ] = None,
    total: Annotated[
        str | None, Option(help="US dollars since the first instance.", metavar="USD")
    ] = None,
    hourly: Annotated[
        str | None,
        Option(help="Price of all instances held at the same time, $/h.", metavar="USD"),
    ] = None,
    zone: Annotated[
        str, Option(help="Time zone in which months begin, such as Europe/Berlin.")
    ] = "UTC",
    as_json: Json = False,
) -> None:
    """Set a budget, in place of all earlier limits of the scope.

    Near a limit all jobs of the scope slow a little, by one weight. At the limit they wait.
    """
    from autoscaler.cli.budgets.tables import budgets_table
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.wire.budget_messages import BudgetRequest, BudgetView
    from autoscaler.wire.connection import connect

    request = BudgetRequest(
        _usd(month, "--month"), _usd(total, "--total"), _usd(hourly, "--hourly"), zone
    )
    view = connect().set_budget(scope, request)
    if as_json:
        print_json(BudgetView, view)
    else:
        print_whole(budgets_table((view,)))


@budget.command("list")
def listed(as_json: Json = False) -> None:
    """Print all budgets with spending, pace and weight.

    The pace is the $/h that uses a budget up at its end; the weight is what a dollar counts.
    """
    from autoscaler.cli.budgets.tables import budgets_table
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.domain.text import printable
    from autoscaler.wire.budget_messages import BudgetView
    from autoscaler.wire.connection import connect

    views = connect().budgets()
    if as_json:
        print_json(tuple[BudgetView, ...], views)
    elif not views:
        print("no budgets: castor budget set team:NAME --month 500 sets one")
    else:
        print_whole(budgets_table(views))
        for view in views:
            if view.used_up is not None:
                print(printable(view.used_up))


@budget.command()
def remove(scope: Scope) -> None:
    """Remove a budget. Its jobs go on at their own best sizes."""
    from autoscaler.wire.connection import connect

    connect().remove_budget(scope)
    print(f"{scope}: no budget")


def _usd(text: str | None, option: str) -> Decimal | None:
    """Return the amount of an option; None stays None.

    Raises:
        BadParameter: the text is no amount above $0.
    """
    from typer import BadParameter

    from autoscaler.spec.quantities import parse_money

    try:
        return None if text is None else parse_money(text)
    except ValueError as error:
        raise BadParameter(str(error), param_hint=option) from None
