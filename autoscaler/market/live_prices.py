"""Checked prices of live offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoscaler.domain.offer import Offer, Purchase
from autoscaler.market.catalogue import catalogue
from autoscaler.market.prices import (
    Discount,
    Price,
    Quote,
    RefusedPrice,
    checked,
    spot_price,
)


def live_price(
    offer: Offer, discounts: Sequence[Discount], asked_seconds: float
) -> Price | RefusedPrice:
    """Return the price of an offer, less the first discount that covers it.

    Checks and discounts apply to the instance only, not to the offer's extras.

    Args:
        offer: the offer as its provider reports it. The price is checked against the catalogue's
            on-demand price of its type, if there is one.
        discounts: the discounts agreed on with providers.
        asked_seconds: the time of the provider's report, in seconds since the Unix epoch.
    """
    as_of_seconds = asked_seconds if offer.priced_seconds is None else offer.priced_seconds
    source = offer.price_source or offer.provider
    if offer.is_paid:
        return Price(offer.usd_per_hour, as_of_seconds, source, is_paid=True)
    extras_usd_per_hour = offer.extras_usd_per_hour
    quote = Quote(offer.usd_per_hour - extras_usd_per_hour, as_of_seconds, source)
    price = _instance_price(offer, quote, discounts)
    if isinstance(price, RefusedPrice) or not extras_usd_per_hour:
        return price
    return replace(price, usd_per_hour=price.usd_per_hour + extras_usd_per_hour)


def _instance_price(
    offer: Offer, quote: Quote, discounts: Sequence[Discount]
) -> Price | RefusedPrice:
    """Return the price of the instance without extras."""
    instance_type = catalogue().get(offer.instance_type)
    reference = None if instance_type is None else instance_type.price
    check = spot_price if offer.purchase is Purchase.SPOT else checked
    price = check(quote, reference)
    if isinstance(price, RefusedPrice):
        return price
    for discount in discounts:
        if discount.covers(offer.provider, offer.instance_type, offer.purchase):
            return checked(discount.applied_to(price), reference)
    return price
