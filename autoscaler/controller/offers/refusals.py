"""Back-off from offers after their cloud refused a launch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
)
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.offer import Offer
from autoscaler.store.repositories.capacity import Refusal, Refuse
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

NOTHING_LAUNCHED: Final = (InsufficientCapacity, QuotaExceeded, PermissionDenied, NotFound)
"""Errors after which the same launch is not tried again."""

_FIRST_SECONDS: Final[dict[type[Exception], float]] = {
    InsufficientCapacity: 15.0,
    QuotaExceeded: 900.0,  # clouds take hours to grant more
}
# Permissions or templates may be corrected at any time; other errors are unknown.
_FIRST_SECONDS_OF_OTHERS: Final = 60.0
_LONGEST_SECONDS: Final = 1800.0
# Requests are free, and spot capacity may last for less than half an hour.
_LONGEST_OUTAGE_SECONDS: Final = 480.0


def record_refusal(
    store: Store,
    offers: Collection[Offer],
    held: HeldInstance,
    error: Exception,
    now_seconds: float,
) -> None:
    """Record what follows from the refusal of an instance's launch, beside that of its offer.

    A refusal for capacity or quota covers all offers that the order named. Zones in which the
    cloud has capacity are asked again soon. `offers` are those of all providers. The event states
    the back-off in seconds.
    """
    asked = [held.offer]
    if isinstance(error, InsufficientCapacity | QuotaExceeded):
        asked += held.alternatives
    for offer in asked[1:]:
        refusal = refusal_by(error, offer, now_seconds)(store.capacity.refusals().get(offer))
        store.capacity.refused(
            offer, refusal.error_kind, now_seconds, refusal.until_seconds, refusal.reason
        )
    if isinstance(error, InsufficientCapacity):
        for offer in _in_open_zones(offers, held.offer, error.open_zones):
            store.capacity.amend(offer, _as_refused_once)
    known = store.capacity.refusals().get(held.offer)
    wait_seconds = known.until_seconds - now_seconds if known else 0.0
    text = (
        f"{', '.join(asked)} refused ({type(error).__name__}): {error}; not asked for again in "
        f"{wait_seconds:.0f} s"
    )
    store.events.add(Event(now_seconds, "launch refused", text, held.job))


def record_acceptance(store: Store, offer: str, now_seconds: float) -> None:
    """Forget the refusals of an offer after a launch, if it is the last one of its wave.

    While other launches of the offer are open, or if one was refused since this one was ordered,
    the back-off goes on: else a job that gets a part of the instances that it needs would buy and
    end that part again and again.
    """
    known = store.capacity.refusals().get(offer)
    if known is None or known.holds(now_seconds):
        return
    alive = store.instances.alive()
    if not any(held.offer == offer and held.cloud_id is None for held in alive):
        store.capacity.accepted(offer)


def _in_open_zones(
    offers: Collection[Offer], refused: str, open_zones: Collection[str]
) -> list[str]:
    """Return the offers of a refused offer's type and purchase in zones that have capacity."""
    return [
        other.id
        for offer in offers
        if offer.id == refused
        for other in offers
        if other.zone in open_zones
        and (other.provider, other.instance_type, other.purchase)
        == (offer.provider, offer.instance_type, offer.purchase)
    ]


def _as_refused_once(refusal: Refusal) -> Refusal:
    """Return a refusal for capacity with the back-off of a first one; any other as it is.

    So zones that the cloud names in vain are asked no more often than zones refused once.
    """
    if refusal.error_kind != InsufficientCapacity.__name__:
        return refusal
    first_seconds = _FIRST_SECONDS[InsufficientCapacity]
    wait_seconds = min(
        first_seconds * 2.0 ** min(refusal.in_a_row - 1, 10), _LONGEST_OUTAGE_SECONDS
    )
    until_seconds = refusal.until_seconds - wait_seconds + first_seconds
    return replace(refusal, in_a_row=1, until_seconds=until_seconds)


def refusal_by(error: Exception, offer: str, now_seconds: float) -> Refuse:
    """Return a function from the offer's earlier refusal to its refusal by `error` now.

    The back-off doubles with each consecutive wave of refused launches.
    """
    first_seconds = _FIRST_SECONDS.get(type(error), _FIRST_SECONDS_OF_OTHERS)
    is_outage = isinstance(error, InsufficientCapacity)
    longest_seconds = _LONGEST_OUTAGE_SECONDS if is_outage else _LONGEST_SECONDS

    def refuse(known: Refusal | None) -> Refusal:
        waves = known.waves_before(now_seconds) if known else 0
        wait_seconds = min(first_seconds * 2.0 ** min(waves, 10), longest_seconds)
        kind, reason = type(error).__name__, str(error) or type(error).__name__
        refusal = Refusal(offer, kind, 1, now_seconds + wait_seconds, reason)
        return refusal.after(known, now_seconds)

    return refuse
