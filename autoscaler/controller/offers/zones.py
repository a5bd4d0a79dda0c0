"""Orders that name several zones: the offers that they may name, and the one that came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from autoscaler.domain.instance import OTHER_ZONE, Desired, HeldInstance
from autoscaler.domain.offer import Offer, is_stale
from autoscaler.domain.plan import Decision
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

# An alternative may cost as much more over this time as one boot of the planned offer costs. So no
# plan that counts a change over less time moves the instance back. It is the time over which an
# offer's reclaims are estimated: spot prices and depths seldom stay for longer.
_MARGIN_SECONDS: Final = 4 * 3600.0


def other_zones(planned_id: str, offers: Sequence[Offer], now_seconds: float) -> list[Offer]:
    """Return the offers that an order of the planned offer may name beside it, cheapest first.

    They are of the same group and network, have a price of known age, and cost hardly more with
    the boots after their reclaims. `offers` have present estimates; without the planned offer
    among them the result is empty.
    """
    planned = next((offer for offer in offers if offer.id == planned_id), None)
    if planned is None or not planned.order_group:
        return []
    most_usd = _usd_per_hour(planned) + (
        float(planned.usd_per_hour) * planned.boot_seconds / _MARGIN_SECONDS
    )
    others = [
        offer
        for offer in offers
        if offer.id != planned_id
        and (offer.order_group, offer.network) == (planned.order_group, planned.network)
        and not _has_stale_price(offer, now_seconds)
        and _usd_per_hour(offer) <= most_usd
    ]
    return sorted(others, key=lambda offer: (_usd_per_hour(offer), offer.id))


def as_launched(decision: Decision, instances: Sequence[HeldInstance]) -> Decision:
    """Return a job's decision with the offer that the cloud launched for its planned offer.

    A decision made before the launch was known names the planned offer. Once a plan knows what the
    job holds, its decision is taken as it is.
    """
    target = decision.target
    if target is None:
        return decision
    for held in instances:
        is_unknown = decision.current is None or decision.current.offer != held.offer
        if (
            is_unknown
            and held.desired is Desired.PRESENT
            and held.ordered_offer == target.offer != held.offer
        ):
            return replace(decision, target=replace(target, offer=held.offer))
    return decision


def record_launched(
    store: Store, before: HeldInstance, after: HeldInstance, now_seconds: float
) -> None:
    """Record the event that the cloud launched an alternative of the planned offer, if it did."""
    if after.offer == before.offer:
        return
    text = (
        f"{after.id}: of {len(before.asked or ())} zones asked in one order the cloud chose "
        f"{after.offer}, at ${after.usd_per_hour}/h; {before.offer} was planned"
    )
    store.events.add(Event(now_seconds, OTHER_ZONE, text, after.job))


def _usd_per_hour(offer: Offer) -> float:
    """Return an offer's price with the boots after its reclaims."""
    boots = offer.reclaims_per_hour * offer.boot_seconds / 3600.0
    return float(offer.usd_per_hour) * (1.0 + boots)


def _has_stale_price(offer: Offer, now_seconds: float) -> bool:
    priced_seconds = offer.priced_seconds
    return is_stale(
        offer.purchase, None if priced_seconds is None else now_seconds - priced_seconds
    )
