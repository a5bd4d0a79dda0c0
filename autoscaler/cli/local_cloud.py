"""The cloud of local processes, asked and told past the controller: as a cloud's console would."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.errors import UnknownInstance
from autoscaler.domain.instance import INSTANCE_TAG
from autoscaler.domain.offer import Limit, LimitUnit, Offer
from autoscaler.supervision import cores_here
from autoscaler.wire.client import Client
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings, default_catalogue


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


def market_here() -> tuple[tuple[Offer, ...], tuple[Limit, ...]]:
    """What a controller of our own would sell here, where none serves, and what bounds it."""
    settings = LocalSettings(devices=cores_here(), catalogue=default_catalogue(boot_seconds=0.0))
    limit = Limit("local devices", LimitUnit.DEVICES, len(settings.devices))
    return settings.catalogue, (limit,)


def _cloud(state: Path, client: Client, clock: Clock) -> LocalProvider:
    return LocalProvider(state / "local", client.fleet().controller, LocalSettings(), clock)
