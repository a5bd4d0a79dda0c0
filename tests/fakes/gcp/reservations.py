"""Reservations of a project, and their refusals.

The fields are those of the discovery document. The messages of refusals are those by which
cluster-autoscaler recognises reservation errors (`Reservation (.*) is incorrect for the requested
resources`, `Reservation (.*) does not have sufficient capacity for the requested resources.`, `it
requires reservation to be in READY state`); their reasons are a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import Refusal, invalid, not_found
from tests.fakes.gcp.project import Body, Project, timestamp

NAME_KEY: Final = "compute.googleapis.com/reservation-name"
BOUND: Final = "RESERVATION_BOUND"


@dataclass(slots=True, eq=False)
class FakeReservation:
    """Reservation; `others` of its instances belong to other users."""

    name: str
    zone: str
    kind: str
    total: int
    accelerators: dict[str, int] | None = None
    others: int = 0
    status: str = "READY"
    created_seconds: float = 0.0
    end_seconds: float | None = None
    lasts_seconds: int | None = None

    def used(self, project: Project) -> int:
        instances = [
            instance
            for instance in project.instances.values()
            if instance.zone == self.zone
            and instance.status != "TERMINATED"
            and target_of(instance.body) == self.name
        ]
        return self.others + len(instances)


def reserve(project: Project, reservation: FakeReservation) -> None:
    """Add a reservation; its end deletes it together with the instances bound to it."""
    project.reservations[reservation.zone, reservation.name] = reservation
    if reservation.end_seconds is not None:
        project.events.schedule(reservation.end_seconds, lambda at: _end(project, reservation))


def _end(project: Project, reservation: FakeReservation) -> None:
    project.reservations.pop((reservation.zone, reservation.name), None)
    for (zone, name), instance in list(project.instances.items()):
        is_inside = zone == reservation.zone and target_of(instance.body) == reservation.name
        if is_inside and instance.purchase == BOUND:
            lifecycle.take(project, name)


def target_of(body: Body) -> str:
    """Return the name of the reservation that an instance targets; empty for any or none."""
    affinity = body.get("reservationAffinity") or {}
    values = affinity.get("values") or []
    is_specific = affinity.get("consumeReservationType") == "SPECIFIC_RESERVATION"
    return str(values[0]) if is_specific and affinity.get("key") == NAME_KEY and values else ""


def check(project: Project, zone: str, kind: str, body: Body) -> None:
    """Refuse an instance for which its reservation has no room.

    Raises:
        Refusal: the instance can't be created.
    """
    name = target_of(body)
    is_bound = (body.get("scheduling") or {}).get("provisioningModel") == BOUND
    if not name:
        if is_bound:
            at = "resource.reservationAffinity"
            raise invalid(at, "", f"{BOUND} needs a specific reservation.")
        return
    reservation = project.reservations.get((zone, name))
    if reservation is None:
        why = f"Could not find the given reservation with the following name: {name}"
        raise Refusal(400, "badRequest", why)
    if reservation.status != "READY":
        why = f"Reservation {name} can't be used: it requires reservation to be in READY state."
        raise Refusal(400, "badRequest", why)
    wanted = lifecycle.accelerators(kind, body)
    reserved = reservation.accelerators or lifecycle.accelerators(reservation.kind, {})
    if (reservation.kind, reserved) != (kind, wanted):
        why = f"Reservation {name} is incorrect for the requested resources."
        raise Refusal(400, "badRequest", why)
    if reservation.used(project) >= reservation.total:
        why = f"Reservation {name} does not have sufficient capacity for the requested resources."
        raise Refusal(400, "badRequest", why)


def get(call: Call) -> Body:
    project, zone, name = call.project, call.parameters["zone"], call.parameters["reservation"]
    reservation = project.reservations.get((zone, name))
    if reservation is None:
        raise not_found(f"projects/{project.id}/zones/{zone}/reservations/{name}")
    accelerators = [
        {"acceleratorType": kind, "acceleratorCount": count}
        for kind, count in (reservation.accelerators or {}).items()
    ]
    ends = (
        {}
        if reservation.end_seconds is None
        else {"deleteAtTime": timestamp(reservation.end_seconds)}
    )
    if reservation.lasts_seconds is not None:
        ends = {"deleteAfterDuration": {"seconds": str(reservation.lasts_seconds)}}
    return {
        "kind": "compute#reservation",
        "id": str(4_000_000_000_000_000_000 + len(name)),
        "name": name,
        "zone": f"{call.root}/zones/{zone}",
        "selfLink": f"{call.root}/zones/{zone}/reservations/{name}",
        "creationTimestamp": timestamp(reservation.created_seconds),
        "status": reservation.status,
        "specificReservationRequired": True,
        "specificReservation": {
            "count": str(reservation.total),
            "inUseCount": str(reservation.used(project)),
            "instanceProperties": {
                "machineType": reservation.kind,
                "guestAccelerators": accelerators,
            },
        },
        **ends,
    }


HANDLERS: dict[str, Handler] = {"compute.reservations.get": get}
