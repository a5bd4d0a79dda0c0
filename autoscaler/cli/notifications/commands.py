"""Commands on notifications: a test of all targets, and the last deliveries."""

from __future__ import annotations

from typing import Annotated

import typer

from autoscaler.cli.options import Json

notify = typer.Typer(
    help="Test the targets of notices; see docs/notifications.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@notify.command()
def test(as_json: Json = False) -> None:
    """Send a test to each target, and wait for the results.

    Exit status 1: a target did not accept it within 20 seconds. It is sent again later.
    """
    from autoscaler.cli.notifications.run import run_test
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    if not run_test(connect(), SystemClock(), as_json):
        raise SystemExit(1)


def notifications(
    number: Annotated[
        int, typer.Option("-n", min=1, max=1000, help="Number of deliveries to print, the latest.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """Print the last deliveries of notices to people.

    The errors of targets are among them; see docs/notifications.md.
    """
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.notifications.run import deliveries_table, no_deliveries
    from autoscaler.cli.output import print_json
    from autoscaler.wire.connection import connect
    from autoscaler.wire.notification_messages import NotificationsView

    view = connect().notifications(number)
    if as_json:
        print_json(NotificationsView, view)
    elif view.deliveries:
        print_whole(deliveries_table(view.deliveries))
    else:
        print(no_deliveries(view))
