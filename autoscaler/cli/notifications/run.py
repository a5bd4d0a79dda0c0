"""Test of the targets of notices, and the table of deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from autoscaler.cli.output import print_json
from autoscaler.cli.programs.tables import local_time
from autoscaler.cli.tables import counted, words_table
from autoscaler.clock import Clock
from autoscaler.domain.notice import DeliveryState
from autoscaler.wire.client import Client
from autoscaler.wire.notification_messages import DeliveryView, NotificationsView

_LONGEST_WAIT_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.2
_MOST_DELIVERIES: Final = 1000


def run_test(client: Client, clock: Clock, as_json: bool) -> bool:
    """Send a test to each target, print the results, and return whether all have accepted it.

    Raises:
        Conflict: there are no targets.
        Forbidden: the requester is no operator.
    """
    sent = client.test_notifications()
    end_seconds = clock.monotonic() + _LONGEST_WAIT_SECONDS
    while True:
        deliveries = _deliveries_of(client, sent.id)
        if all(delivery.attempts for delivery in deliveries):
            break
        if clock.monotonic() >= end_seconds:
            break
        clock.sleep(_POLL_SECONDS)
    if as_json:
        print_json(tuple[DeliveryView, ...], deliveries)
    else:
        for delivery in deliveries:
            print(f"{delivery.target}: {_result(delivery)}")
    return all(delivery.state is DeliveryState.DELIVERED for delivery in deliveries)


def _deliveries_of(client: Client, message_id: str) -> tuple[DeliveryView, ...]:
    """Return the deliveries of one message, by target."""
    latest = client.notifications(_MOST_DELIVERIES).deliveries
    of_message = (delivery for delivery in latest if delivery.id == message_id)
    return tuple(sorted(of_message, key=lambda delivery: delivery.target))


def _result(delivery: DeliveryView) -> str:
    if delivery.state is DeliveryState.DELIVERED:
        return "delivered"
    if not delivery.attempts:
        return f"no answer within {_LONGEST_WAIT_SECONDS:.0f} s; castor notifications shows it"
    again = "" if delivery.state is DeliveryState.GIVEN_UP else "; it is sent again"
    return f"not delivered: {delivery.error}{again}"


def deliveries_table(deliveries: Sequence[DeliveryView]) -> Table:
    """Return a table with a row for each delivery, the latest first."""
    table = words_table("time", "event", "target", "state", "notice", wraps={"state", "notice"})
    for delivery in deliveries:
        table.add_row(
            local_time(delivery.at_seconds),
            delivery.kind,
            delivery.target,
            _state(delivery),
            delivery.text,
        )
    return table


def _state(delivery: DeliveryView) -> str:
    if delivery.error is None:
        return delivery.state
    attempts = counted(delivery.attempts, "attempt")
    return f"{delivery.state}, {attempts}: {delivery.error}"


def no_deliveries(view: NotificationsView) -> str:
    """Return the words for an empty list."""
    if not view.targets:
        return "no targets: castor serve --notify FILE names some (docs/notifications.md)"
    names = ", ".join(target.name for target in view.targets)
    return f"no notice yet; targets: {names}"
