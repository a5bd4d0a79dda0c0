"""Reservations of a project, and what they refuse.

The fields are those of the discovery document. The words of refusals are those that
cluster-autoscaler tells reservation errors apart by (`Reservation (.*) is incorrect for the
requested resources`, `Reservation (.*) does not have sufficient capacity for the requested
resources.`, `it requires reservation to be in READY state`); the reasons beside them are a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.call import Call, Handler
from tests.fakes.gcp.errors import Refusal, invalid, not_found
from tests.fakes.gcp.project import Body, Project, written

NAME_KEY: Final = "compute.googleapis.com/reservation-name"
BOUND: Final = "RESERVATION_BOUND"


@dataclass(slots=True, eq=False)
class FakeReservation:
    """A reservation; `others` of its instances are not of the deployment."""

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
        own = [
            one
            for one in project.instances.values()
            if one.zone == self.zone
            and one.status != "TERMINATED"
            and target_of(one.body) == self.name
        ]
        return self.others + len(own)


def reserve(project: Project, reservation: FakeReservation) -> None:
    """At its end it is deleted, and with it the instances that are bound to it."""
    project.reservations[reservation.zone, reservation.name] = reservation
    if reservation.end_seconds is not None:
        project.agenda.at(reservation.end_seconds, lambda at: _end(project, reservation))


def _end(project: Project, reservation: FakeReservation) -> None:
    project.reservations.pop((reservation.zone, reservation.name), None)
    for (zone, name), one in list(project.instances.items()):
        is_inside = zone == reservation.zone and target_of(one.body) == reservation.name
        if is_inside and one.purchase == BOUND:
            lifecycle.take(project, name)


def target_of(body: Body) -> str:
    """The name of the reservation that an instance is for; empty for any or none."""
    affinity = body.get("reservationAffinity") or {}
    values = affinity.get("values") or []
    is_specific = affinity.get("consumeReservationType") == "SPECIFIC_RESERVATION"
    return str(values[0]) if is_specific and affinity.get("key") == NAME_KEY and values else ""


def check(project: Project, zone: str, kind: str, body: Body) -> None:
    """Refuse an instance that its reservation has no room for.

    Raises:
        Refusal: it can't be made.
    """
    name = target_of(body)
    is_bound = (body.get("scheduling") or {}).get("provisioningModel") == BOUND
    if not name:
        if is_bound:
            at = "resource.reservationAffinity"
            raise invalid(at, "", f"{BOUND} needs a specific reservation.")
        return
    found = project.reservations.get((zone, name))
    if found is None:
        why = f"Could not find the given reservation with the following name: {name}"
        raise Refusal(400, "badRequest", why)
    if found.status != "READY":
        why = f"Reservation {name} can't be used: it requires reservation to be in READY state."
        raise Refusal(400, "badRequest", why)
    wanted = lifecycle.accelerators(kind, body)
    reserved = found.accelerators or lifecycle.accelerators(found.kind, {})
    if (found.kind, reserved) != (kind, wanted):
        why = f"Reservation {name} is incorrect for the requested resources."
        raise Refusal(400, "badRequest", why)
    if found.used(project) >= found.total:
        why = f"Reservation {name} does not have sufficient capacity for the requested resources."
        raise Refusal(400, "badRequest", why)


def get(call: Call) -> Body:
    project, zone, name = call.project, call.parameters["zone"], call.parameters["reservation"]
    found = project.reservations.get((zone, name))
    if found is None:
        raise not_found(f"projects/{project.id}/zones/{zone}/reservations/{name}")
    accelerators = [
        {"acceleratorType": kind, "acceleratorCount": count}
        for kind, count in (found.accelerators or {}).items()
    ]
    ends = {} if found.end_seconds is None else {"deleteAtTime": written(found.end_seconds)}
    if found.lasts_seconds is not None:
        ends = {"deleteAfterDuration": {"seconds": str(found.lasts_seconds)}}
    return {
        "kind": "compute#reservation",
        "id": str(4_000_000_000_000_000_000 + len(name)),
        "name": name,
        "zone": f"{call.root}/zones/{zone}",
        "selfLink": f"{call.root}/zones/{zone}/reservations/{name}",
        "creationTimestamp": written(found.created_seconds),
        "status": found.status,
        "specificReservationRequired": True,
        "specificReservation": {
            "count": str(found.total),
            "inUseCount": str(found.used(project)),
            "instanceProperties": {"machineType": found.kind, "guestAccelerators": accelerators},
        },
        **ends,
    }


HANDLERS: dict[str, Handler] = {"compute.reservations.get": get}
