"""Back-off from an offer after its cloud refused a launch."""

from __future__ import annotations

from typing import Final

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
)
from autoscaler.domain.instance import HeldInstance
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


def record_refusal(store: Store, held: HeldInstance, error: Exception, now_seconds: float) -> None:
    """Record the event that an instance's launch was refused, with the back-off in seconds."""
    refusal = store.capacity.refusals().get(held.offer)
    wait_seconds = refusal.until_seconds - now_seconds if refusal else 0.0
    text = (
        f"{held.offer} refused ({type(error).__name__}): {error}; not asked for again in "
        f"{wait_seconds:.0f} s"
    )
    store.events.add(Event(now_seconds, "launch refused", text, held.job))


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
