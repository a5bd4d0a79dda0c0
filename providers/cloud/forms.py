"""Shared fields and checks of all clouds' pool documents, including their `schema` version."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Annotated, Final, Protocol

from pydantic import AfterValidator, BeforeValidator, Field

from autoscaler.domain.offer import Purchase
from autoscaler.domain.text import quoted
from autoscaler.spec.quantities import Amount, MoneyText, parse_money

SCHEMA: Final = 1


class PlacedPool(Protocol):
    """Pool of the settings, with its region and zones."""

    @property
    def region(self) -> str:
        """Region of the pool."""
        ...

    @property
    def zones(self) -> tuple[str, ...] | None:
        """Zones that the pool names; None if it names none."""
        ...


def require_ground(
    pools: Mapping[str, PlacedPool], zones: Mapping[str, Collection[str]], lack: str
) -> None:
    """Check that pools are only in regions and zones of `zones`, which maps a region to its zones.

    `lack` is the message for an unknown zone, with the field `{region}`.

    Raises:
        ValueError: a pool is elsewhere; the error names its key and the known choices.
    """
    for name, pool in pools.items():
        region_zones = zones.get(pool.region)
        if region_zones is None:
            known = ", ".join(zones)
            raise ValueError(f"pools.{name}.region: {pool.region} is not in regions: {known}")
        for zone in pool.zones or ():
            if zone not in region_zones:
                reason, known = lack.format(region=pool.region), ", ".join(region_zones)
                raise ValueError(f"pools.{name}.zones: {zone} {reason}; there are {known}")


def require_reservation(
    purchases: Collection[Purchase],
    reservation: str | None,
    types: Collection[str],
    zones: Collection[str] | None,
) -> None:
    """Check that a pool is of its reservation alone, or has none.

    Raises:
        ValueError: the pool is partly reserved, lacks its reservation, or has several types or
            zones.
    """
    if Purchase.RESERVED not in purchases:
        if reservation is not None:
            raise ValueError("reservation: is for purchases = reserved only: leave it out")
    elif len(purchases) > 1:
        raise ValueError("purchases: reserved stands alone: buy the others in another pool")
    elif reservation is None:
        raise ValueError("reservation is missing: name the one that was bought for this pool")
    elif len(types) != 1 or len(zones or ()) != 1:
        raise ValueError("zones: a reservation has one type in one zone: name one of each")


def matching(pattern: str, example: str) -> AfterValidator:
    """Return a validator that accepts texts of `pattern`; its error shows `example`."""

    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(f"{quoted(value)} is not valid: write it like {example}")
        return value

    return AfterValidator(check)


def _check_schema(value: int) -> int:
    if value != SCHEMA:
        raise ValueError(
            f"this Castor reads schema {SCHEMA}, not {value}: use the Terraform module of the "
            "same release"
        )
    return value


def bought(*sold: Purchase) -> AfterValidator:
    """Return a validator that accepts the kinds of purchase in `sold`."""

    def check(value: Purchase) -> Purchase:
        if value not in sold:
            known = " or ".join(purchase.value for purchase in sold)
            raise ValueError(f"{value.value} is not sold here: write {known}")
        return value

    return AfterValidator(check)


def _parse_money_or_zero(value: object) -> Decimal:
    text = str(value).strip()
    if re.fullmatch(r"0+(\.0+)?", text):
        return Decimal(0)
    try:
        return parse_money(text)
    except ValueError:
        raise ValueError(
            f'"{text}" is not an amount: write it like 0.03, or 0 without extra charges'
        ) from None


Schema = Annotated[int, AfterValidator(_check_schema)]
Money = Annotated[
    Decimal,
    BeforeValidator(
        lambda value: parse_money(str(value)), json_schema_input_type=Amount | MoneyText
    ),
]
MoneyOrNothing = Annotated[
    Decimal,
    BeforeValidator(
        _parse_money_or_zero,
        json_schema_input_type=Annotated[float, Field(ge=0, lt=1e9)] | MoneyText,
    ),
]
Name = Annotated[str, matching(r"[a-z0-9][a-z0-9-]{0,62}", "gpu-large")]
BootMinutes = Annotated[int, Field(ge=3, le=120)]
"""Minutes after which an instance whose agent has not joined ends, as Terraform allows them."""
Url = Annotated[str, matching(r"https?://\S+", "https://host/path")]
