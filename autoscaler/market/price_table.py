"""Published price lists: CSV tables of instance types, regions or zones, and prices."""

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
    """One line of a price list. With `zone` None it holds for all of `region`."""

    instance_type: str
    region: str
    zone: str | None
    on_demand: Quote
    spot: Quote

    def covers(self, zone: str) -> bool:
        """Return whether the line holds for `zone`, the name of a zone or of a region."""
        if self.zone is not None:
            return zone in (self.zone, self.region)
        return is_in_region(zone, self.region)

    def has_on_demand_of(self, zone: str) -> bool:
        """Return whether the line's on-demand price holds in `zone`.

        On-demand prices of a zone hold in its whole region.
        """
        return zone == self.zone or is_in_region(zone, self.region)


class PriceTable:
    """A price list."""

    def __init__(self, rows: Sequence[PriceRow]) -> None:
        self._rows: dict[str, list[PriceRow]] = {}
        for row in rows:
            self._rows.setdefault(row.instance_type, []).append(row)

    def __contains__(self, instance_type: str) -> bool:
        return instance_type in self._rows

    def price(
        self, instance_type: str, zone: str, purchase: Purchase, reference: Price | None
    ) -> Price | RefusedPrice:
        """Return the price of an instance type in a zone or region, or why there is none.

        `reference` is an on-demand price to check prices against, as in `checked`.
        """
        rows = self._rows.get(instance_type, [])
        on_demand = self._on_demand(rows, zone, reference)
        if purchase is Purchase.ON_DEMAND:
            return on_demand
        if purchase is Purchase.FLEX_START:  # price lists have no column for it
            return at_most(on_demand, purchase)
        spot_rows = [row for row in rows if row.covers(zone) and row.spot.usd_per_hour is not None]
        if not spot_rows:
            return RefusedPrice(f"no spot price in {zone}{_suggest_zones(rows)}")
        if len(spot_rows) > 1:
            zones = ", ".join(f"{row.zone} (${row.spot.usd_per_hour})" for row in spot_rows)
            return RefusedPrice(f"spot in {zone} has a price in each zone: name one of {zones}")
        local_reference = on_demand if isinstance(on_demand, Price) else None
        return spot_price(spot_rows[0].spot, local_reference or reference)

    @staticmethod
    def _on_demand(
        rows: Sequence[PriceRow], zone: str, reference: Price | None
    ) -> Price | RefusedPrice:
        for row in rows:
            if row.has_on_demand_of(zone) and row.on_demand.usd_per_hour is not None:
                return checked(row.on_demand, reference)
        regions = sorted({row.region for row in rows if row.on_demand.usd_per_hour is not None})
        suggestion = f": name one of {', '.join(regions)}" if regions else ""
        return RefusedPrice(f"no on-demand price in {zone}{suggestion}")


def parse_price_table(text: str, source: str, as_of_seconds: float | None) -> PriceTable:
    """Return the price table in a CSV file.

    Columns, in any order: ``instance_type`` or ``machine_type``; ``region``; optionally ``az_id``,
    a zone to which the line is limited; ``ondemand_usd_hr`` and ``spot_usd_hr``, one or both, in
    US dollars per hour. An empty price is unknown. Other columns are ignored.

    Raises:
        SpecError: a column is missing or a line can't be read; names `source` and the line.
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
        raise SpecError(f"{source}:{reader.line_num + 1}: is not valid CSV: {error}") from error
    _refuse_repeated(rows, source)
    return PriceTable(rows)


def is_in_region(zone: str, region: str) -> bool:
    """Return whether `zone` is the region or a zone in it, as us-east-1b and us-central1-a."""
    return re.fullmatch(rf"{re.escape(region)}(-?[a-z])?", zone) is not None


@dataclass(frozen=True, slots=True)
class _Origin:
    """File, line and time of a price."""

    source: str
    line: int
    as_of_seconds: float | None

    def error(self, column: str, problem: str) -> SpecError:
        """Return the error for a value in this line."""
        return SpecError(f"{self.source}:{self.line}: {column}: {problem}")


def _type_column(columns: Sequence[str], source: str) -> str:
    type_columns = [column for column in _TYPE_COLUMNS if column in columns]
    price_columns = [column for column in (_ON_DEMAND_COLUMN, _SPOT_COLUMN) if column in columns]
    missing = [
        column
        for column, is_present in (
            (" or ".join(_TYPE_COLUMNS), type_columns),
            ("region", "region" in columns),
            (f"{_ON_DEMAND_COLUMN} or {_SPOT_COLUMN}", price_columns),
        )
        if not is_present
    ]
    if missing:
        raise SpecError(f"{source}:1: is not a price list: it has no column {missing[0]}")
    return type_columns[0]


def _refuse_repeated(rows: Sequence[PriceRow], source: str) -> None:
    counts = Counter((row.instance_type, row.zone or row.region) for row in rows)
    for (instance_type, place), count in counts.items():
        if count > 1:
            raise SpecError(
                f"{source}: {instance_type} in {place} is listed {count} times: keep one line"
            )


def _row(line: Mapping[str, str | None], type_column: str, origin: _Origin) -> PriceRow:
    if None in line.values() or None in line:
        raise origin.error("line", "must have as many values as the header has columns")
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
        raise origin.error(
            column, f'"{text}" is not a price: write US dollars per hour'
        ) from error
    return Quote(usd, origin.as_of_seconds, f"{origin.source}:{origin.line}")


def _suggest_zones(rows: Sequence[PriceRow]) -> str:
    zones = sorted({row.zone or row.region for row in rows if row.spot.usd_per_hour is not None})
    return f": name one of {', '.join(zones)}" if zones else ""
