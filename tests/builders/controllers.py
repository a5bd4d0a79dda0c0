"""Clients of controllers that a test has started as processes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from autoscaler.domain.errors import Unavailable
from autoscaler.wire.client import Client
from autoscaler.wire.connection import connect


def ticking_client(state: Path) -> Client | None:
    """Return a client of the controller on a state directory; None before its first tick."""
    with suppress(Unavailable):
        client = connect(state)
        if client.fleet().ticked_seconds is not None:
            return client
        client.close()
    return None
