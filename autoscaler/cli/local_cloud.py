"""Direct access to the cloud of local processes, without the controller."""

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
    """Reclaim an instance: the cloud gives notice, then ends the instance.

    Raises:
        UnknownInstance: the controller holds no such instance in the cloud of `state`.
    """
    cloud = _cloud(state, client, clock)
    for cloud_instance in cloud.instances():
        if cloud_instance.tags.get(INSTANCE_TAG) == instance:
            cloud.reclaim(cloud_instance.id)
            return
    held = ", ".join(view.id for view in client.fleet().instances) or "none"
    raise UnknownInstance(f"{state} holds no instance {instance!r}; its instances: {held}")


def billed_usd(state: Path, client: Client, clock: Clock) -> Decimal:
    """Return the US dollars that this cloud charged the controller."""
    return sum((line.usd for line in _cloud(state, client, clock).bill()), Decimal(0))


def market_here() -> tuple[tuple[Offer, ...], tuple[Limit, ...]]:
    """Return offers and limits of a new controller on this machine."""
    settings = LocalSettings(devices=cores_here(), catalogue=default_catalogue(boot_seconds=0.0))
    limit = Limit(
        "local devices", LimitUnit.DEVICES, len(settings.devices), place="castor serve --devices"
    )
    return settings.catalogue, (limit,)


def _cloud(state: Path, client: Client, clock: Clock) -> LocalProvider:
    return LocalProvider(state / "local", client.fleet().controller, LocalSettings(), clock)
