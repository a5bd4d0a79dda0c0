"""The cloud of local processes, asked and told past the controller: as a cloud's console would."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.errors import UnknownInstance
from autoscaler.domain.instance import INSTANCE_TAG
from autoscaler.wire.client import Client
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings


def reclaim(state: Path, client: Client, instance: str, clock: Clock) -> None:
    """Take an instance back: notice first, then the end.

    Raises:
        UnknownInstance: the controller holds none of this name in the cloud below `state`.
    """
    cloud = _cloud(state, client, clock)
    for found in cloud.instances():
        if found.tags.get(INSTANCE_TAG) == instance:
            cloud.reclaim(found.id)
            return
    held = ", ".join(each.id for each in client.fleet().instances) or "none"
    raise UnknownInstance(f"no instance {instance!r} is held in {state}: there are {held}")


def billed_usd(state: Path, client: Client, clock: Clock) -> Decimal:
    """What this cloud says it charged the controller."""
    return sum((line.usd for line in _cloud(state, client, clock).bill()), Decimal(0))


def _cloud(state: Path, client: Client, clock: Clock) -> LocalProvider:
    return LocalProvider(state / "local", client.fleet().controller, LocalSettings(), clock)
