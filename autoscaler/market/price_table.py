"""Price lists as they are published: CSV tables of types, regions or zones, and prices."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.offer import Purchase
from autoscaler.market.prices import Price, Quote, RefusedPrice, at_most, checked, spot_price

_TYPE_COLUMNS: Final = ("instance_type", "machine_type")
_ON_DEMAND_COLUMN: Final = "ondemand_usd_hr"
_SPOT_COLUMN: Final = "spot_usd_hr"


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What one line says. `zone` None: it holds for all of `region`."""

    instance_type: str
    region: str
    zone: str | None
    on_demand: Quote
    spot: Quote

    def covers(self, zone: str) -> bool:
        """Whether `zone`, the name of a zone or a region, is or holds what the line is of."""
        if self.zone is not None:
            return zone in (self.zone, self.region)
        return is_in_region(zone, self.region)

    def has_on_demand_of(self, zone: str) -> bool:
        """Whether the line's on-demand price holds there: that of a region does in its zones."""
        return zone == self.zone or is_in_region(zone, self.region)


class PriceTable:
    """One price list."""

    def __init__(self, rows: Sequence[PriceRow]) -> None:
        self._rows: dict[str, list[PriceRow]] = {}
        for row in rows:
            self._rows.setdefault(row.instance_type, []).append(row)

    def __contains__(self, instance_type: str) -> bool:
        return instance_type in self._rows

    def price(
        self, instance_type: str, zone: str, purchase: Purchase, reference: Price | None
    ) -> Price | RefusedPrice:
        """The price of such an instance in a zone or region, or why there is none.

        `reference` is an on-demand price that its prices can't be far from, as in `checked`.
        """
        rows = self._rows.get(instance_type, [])
        on_demand = self._on_demand(rows, zone, reference)
        if purchase is Purchase.ON_DEMAND:
            return on_demand
        if purchase is Purchase.FLEX_START:  # which no list has a column of
            return at_most(on_demand, purchase)
        sold = [row for row in rows if row.covers(zone) and row.spot.usd_per_hour is not None]
        if not sold:
            return RefusedPrice(f"nobody sells spot in {zone}{_elsewhere(rows)}")
        if len(sold) > 1:
            zones = ", ".join(f"{row.zone} (${row.spot.usd_per_hour})" for row in sold)
            return RefusedPrice(f"spot in {zone} has a price in each zone: name one of {zones}")
        near = on_demand if isinstance(on_demand, Price) else None
        return spot_price(sold[0].spot, near or reference)

    @staticmethod
    def _on_demand(
        rows: Sequence[PriceRow], zone: str, reference: Price | None
    ) -> Price | RefusedPrice:
        for row in rows:
            if row.has_on_demand_of(zone) and row.on_demand.usd_per_hour is not None:
                return checked(row.on_demand, reference)
        regions = sorted({row.region for row in rows if row.on_demand.usd_per_hour is not None})
        instead = f": name one of {', '.join(regions)}" if regions else ""
        return RefusedPrice(f"nobody sells it on demand in {zone}{instead}")


def parse_price_table(text: str, source: str, as_of_seconds: float | None) -> PriceTable:
    """The table that a CSV file holds.

    Columns, in any order: ``instance_type`` or ``machine_type``; ``region``; optionally
    ``az_id`` (a zone: the line is of that zone alone); ``ondemand_usd_hr`` and ``spot_usd_hr``,
    one or both, in US dollars an hour. An empty price means that none is known. Others are left.

    Raises:
        SpecError: a column is missing, or a line can't be read; with `source` and the line.
    """
    reader = csv.DictReader(text.splitlines(), strict=True)
    try:
        columns = reader.fieldnames or ()
        type_column = _type_column(columns, source)
        rows = [
            _row(line, type_column, _Origin(source, reader.line_num, as_of_seconds))
            for line in reader
        ]
    except csv.Error as error:
        raise SpecError(f"{source}:{reader.line_num + 1}: is no CSV: {error}") from error
    _refuse_repeated(rows, source)
    return PriceTable(rows)


def is_in_region(zone: str, region: str) -> bool:
    """Whether `zone` names the region or, as us-east-1b and us-central1-a, a zone in it."""
    return re.fullmatch(rf"{re.escape(region)}(-?[a-z])?", zone) is not None


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a line stands, and of when it is."""

    source: str
    line: int
    as_of_seconds: float | None

    def error(self, column: str, problem: str) -> SpecError:
        """What is wrong with a value of that line."""
        return SpecError(f"{self.source}:{self.line}: {column}: {problem}")


def _type_column(columns: Sequence[str], source: str) -> str:
    found = [column for column in _TYPE_COLUMNS if column in columns]
    prices = [column for column in (_ON_DEMAND_COLUMN, _SPOT_COLUMN) if column in columns]
    missing = [
        wanted
        for wanted, is_there in (
            (" or ".join(_TYPE_COLUMNS), found),
            ("region", "region" in columns),
            (f"{_ON_DEMAND_COLUMN} or {_SPOT_COLUMN}", prices),
        )
        if not is_there
    ]
    if missing:
        raise SpecError(f"{source}:1: is no price list: it has no column {missing[0]}")
    return found[0]


def _refuse_repeated(rows: Sequence[PriceRow], source: str) -> None:
    counts = Counter((row.instance_type, row.zone or row.region) for row in rows)
    for (instance_type, place), count in counts.items():
        if count > 1:
            raise SpecError(
                f"{source}: {instance_type} in {place} stands {count} times: leave one line of it"
            )


def _row(line: Mapping[str, str | None], type_column: str, origin: _Origin) -> PriceRow:
    if None in line.values() or None in line:
        raise origin.error("line", "has not as many values as the first line has columns")
    values = {column: value or "" for column, value in line.items()}
    for column in (type_column, "region"):
        if not values[column]:
            raise origin.error(column, "is empty")
    return PriceRow(
        instance_type=values[type_column],
        region=values["region"],
        zone=values.get("az_id") or None,
        on_demand=_quote(values, _ON_DEMAND_COLUMN, origin),
        spot=_quote(values, _SPOT_COLUMN, origin),
    )


def _quote(values: Mapping[str, str], column: str, origin: _Origin) -> Quote:
    text = values.get(column, "").strip()
    try:
        usd = Decimal(text) if text else None
    except InvalidOperation as error:
        raise origin.error(column, f'"{text}" is no price: write dollars an hour') from error
    return Quote(usd, origin.as_of_seconds, f"{origin.source}:{origin.line}")


def _elsewhere(rows: Sequence[PriceRow]) -> str:
    zones = sorted({row.zone or row.region for row in rows if row.spot.usd_per_hour is not None})
    return f": name one of {', '.join(zones)}" if zones else ""
