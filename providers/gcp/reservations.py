"""Reservations of Compute Engine that pools launch into, as the API describes them.

A reservation is billed whether it is used or not, so an instance in it costs no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.domain.errors import NotFound
from providers.cloud.replies import readable
from providers.cloud.reservations import Reservation
from providers.gcp.calls import ProjectCalls
from providers.gcp.replies import seconds_of
from providers.gcp.settings import PoolForm

_READY: Final = "READY"


def reservations_of(
    calls: ProjectCalls, pools: Mapping[str, PoolForm], template_errors: Mapping[str, str | None]
) -> dict[str, Reservation]:
    """Return the reservations of the pools, by pool.

    `template_errors` has, for each pool whose template can be read, why that does not launch into
    the reservation; None if it does. Without it the reservation is closed: instances might run on
    demand.

    Raises:
        ProviderError: the reservations can't be read.
    """
    reservations = {}
    for name, pool in pools.items():
        if pool.reservation is None or pool.zones is None:
            continue
        (zone,) = pool.zones
        try:
            described = calls.reservation(zone, pool.reservation, name)
        except NotFound:
            continue
        with readable(f"{zone}: reservations.get"):
            template_error = template_errors.get(name, "has a template that can't be read")
            closed = _closed_reason(described) or template_error
            reservations[name] = _reservation(described, pool, zone, closed)
    return reservations


def _reservation(described: Any, pool: PoolForm, zone: str, closed: str | None) -> Reservation:
    specific = described.specific_reservation
    return Reservation(
        _instance_type(specific.instance_properties, pool),
        zone,
        specific.count,
        specific.count - specific.in_use_count,
        _until_seconds(described),
        closed,
        is_over=described.status == "DELETING",
    )


def _closed_reason(described: Any) -> str | None:
    if described.status != _READY:
        return f"is {described.status}, not {_READY}"
    if not described.specific_reservation.count:
        return "is of no specific machine type"
    return None


def _instance_type(properties: Any, pool: PoolForm) -> str:
    """Return the catalogue's name of the reserved type, with the accelerators of an n1."""
    if pool.accelerator is None or not properties.guest_accelerators:
        return str(properties.machine_type)
    (accelerator,) = properties.guest_accelerators
    kind = accelerator.accelerator_type.rpartition("/")[2]
    kind = kind.removeprefix("nvidia-").removeprefix("tesla-")
    return f"{properties.machine_type}+{accelerator.accelerator_count}x{kind}"


def _until_seconds(described: Any) -> float | None:
    """Return when Compute Engine deletes the reservation; None if it does not."""
    if described.delete_at_time:
        return seconds_of(described.delete_at_time)
    lasts_seconds = described.delete_after_duration.seconds
    return seconds_of(described.creation_timestamp) + lasts_seconds if lasts_seconds else None
