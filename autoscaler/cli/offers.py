"""What can be bought, as people are shown it: by a controller, or in a file of offers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from autoscaler.cli.tables import money, words_table
from autoscaler.domain.offer import Offer, is_stale
from autoscaler.spec.offers_file import load_offers
from autoscaler.spec.quantities import format_duration
from autoscaler.wire.messages import OffersView, OfferView

_DIRECTORIES = re.compile(r"(?<![^\s(])[^\s($]*/(?=\S)")


def offers_in(path: Path, now_seconds: float) -> OffersView:
    """What a file of offers says.

    Raises:
        SpecError: it can't be used.
    """
    file = load_offers(path, now_seconds)
    views = []
    for offer in file.offers:
        price = file.prices[offer.id]
        age_seconds = price.age_seconds(now_seconds)
        views.append(
            OfferView(offer, price.source, age_seconds, is_stale(offer.purchase, age_seconds))
        )
    return OffersView(tuple(views))


def offers_table(view: OffersView) -> RenderableType:
    """One row an offer, and a line for each that is left out."""
    columns = ("offer", "devices", "zone", "$/h", "price")
    table = words_table(*columns, wraps=("price",), right=("$/h",))
    for row in view.offers:
        offer = row.offer
        price = Text(f"{_age(row.price_age_seconds)}: {_without_directories(row.price_source)}")
        if offer.extras_usd_per_hour:
            price.append(f"; {money(offer.extras_usd_per_hour)} of it for volume and address")
        for remark in _remarks(row):
            price.append(f"; {remark}", style="yellow")
        table.add_row(
            offer.id,
            f"{offer.devices} x {offer.device_kind}",
            offer.zone,
            "paid" if offer.is_paid else money(offer.usd_per_hour),
            price,
        )
    lines = [
        Text(f"{offer} is left out: {why}", style="red") for offer, why in view.refused.items()
    ]
    return Group(table, *lines)


def _without_directories(source: str) -> str:
    """The source, of files their names alone."""
    return _DIRECTORIES.sub("", source)


def _age(seconds: float | None) -> str:
    return "of an unknown day" if seconds is None else f"{format_duration(max(seconds, 0.0))} ago"


def _remarks(row: OfferView) -> list[str]:
    remarks = [_until(row.offer)] if row.offer.until_seconds is not None else []
    if row.offer.reclaims_per_hour > 0:
        remarks.append(f"taken back {row.offer.reclaims_per_hour:.2g} times an hour")
    if row.is_stale:
        remarks.append("stale, it may have moved")
    if row.is_unavailable:
        remarks.append("refused lately")
    return remarks


def _until(offer: Offer) -> str:
    end = datetime.fromtimestamp(offer.until_seconds or 0.0, UTC).astimezone()
    return f"until {end:%Y-%m-%d %H:%M}"
