"""Table of `castor offers`, for offers of a controller or of an offers file."""

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
    """Return the offers of an offers file, with age and source of each price.

    Raises:
        SpecError: the file can't be used.
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
    """Return a table with a row for each offer, and a line for each rejected offer."""
    names_zones = all(row.offer.zone in row.offer.id for row in view.offers)
    zone = () if names_zones else ("zone",)
    columns = ("offer", "devices", *zone, "$/h", "price")
    table = words_table(*columns, wraps=("price",), right=("$/h",))
    for row in view.offers:
        offer = row.offer
        price = Text(f"{_age(row.price_age_seconds)}: {_without_directories(row.price_source)}")
        if offer.extras_usd_per_hour:
            price.append(f"; includes {money(offer.extras_usd_per_hour)} for volume and address")
        for remark in _remarks(row):
            price.append(f"; {remark}", style="yellow")
        table.add_row(
            offer.id,
            f"{offer.devices} x {offer.device_kind}",
            *(() if names_zones else (offer.zone,)),
            money(offer.usd_per_hour) if offer.usd_per_hour else "paid",
            price,
        )
    lines = [
        Text(f"{offer} is left out: {reason}", style="red")
        for offer, reason in view.refused.items()
    ]
    return Group(table, *lines)


def _without_directories(source: str) -> str:
    """Return the source of a price with each file path reduced to the file's name."""
    return _DIRECTORIES.sub("", source)


def _age(seconds: float | None) -> str:
    return "age unknown" if seconds is None else f"{format_duration(max(seconds, 0.0))} ago"


def _remarks(row: OfferView) -> list[str]:
    remarks = [_until(row.offer)] if row.offer.until_seconds is not None else []
    if row.offer.reclaims_per_hour > 0:
        remarks.append(f"reclaimed {row.offer.reclaims_per_hour:.2g} times an hour")
    if row.is_stale:
        remarks.append("stale: the price may have changed")
    if row.is_unavailable:
        remarks.append("refused recently")
    return remarks


def _until(offer: Offer) -> str:
    end = datetime.fromtimestamp(offer.until_seconds or 0.0, UTC).astimezone()
    return f"until {end:%Y-%m-%d %H:%M}"
