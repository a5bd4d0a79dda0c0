"""What pools' documents of all clouds have in common: they say which `schema` they are in."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Annotated, Final, Protocol

from pydantic import AfterValidator, BeforeValidator

from autoscaler.domain.offer import Purchase
from autoscaler.spec.quantities import parse_money

SCHEMA: Final = 1


class PlacedPool(Protocol):
    """One pool of the settings, and where its instances may be."""

    @property
    def region(self) -> str:
        """Its region."""
        ...

    @property
    def zones(self) -> tuple[str, ...] | None:
        """The zones that it names, if it does."""
        ...


def require_ground(
    pools: Mapping[str, PlacedPool], zones: Mapping[str, Collection[str]], lack: str
) -> None:
    """Pools may only be where regions have `zones`; `lack` says of a zone that it is not there.

    Raises:
        ValueError: one is elsewhere; the error names its key and what there is.
    """
    for name, pool in pools.items():
        there = zones.get(pool.region)
        if there is None:
            known = ", ".join(zones)
            raise ValueError(f"pools.{name}.region: {pool.region} is not in regions: {known}")
        for zone in pool.zones or ():
            if zone not in there:
                lacks, known = lack.format(region=pool.region), ", ".join(there)
                raise ValueError(f"pools.{name}.zones: {zone} {lacks}; there are {known}")


def matching(pattern: str, example: str) -> AfterValidator:
    """A text of that pattern; one of another is answered with the example."""

    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(f'"{value}" is none: write it like {example}')
        return value

    return AfterValidator(check)


def _schema(value: int) -> int:
    if value != SCHEMA:
        raise ValueError(
            f"this Castor reads schema {SCHEMA}, not {value}: use its release's Terraform module"
        )
    return value


def bought(*sold: Purchase) -> AfterValidator:
    """One of the terms on which a cloud sells."""

    def check(value: Purchase) -> Purchase:
        if value not in sold:
            known = " or ".join(one.value for one in sold)
            raise ValueError(f"{value.value} is nothing to buy here: write {known}")
        return value

    return AfterValidator(check)


def _money_or_nothing(value: object) -> Decimal:
    text = str(value).strip()
    if re.fullmatch(r"0+(\.0+)?", text):
        return Decimal(0)
    try:
        return parse_money(text)
    except ValueError:
        raise ValueError(
            f'"{text}" is no amount: write it like 0.03, or 0 if an instance is billed alone'
        ) from None


Schema = Annotated[int, AfterValidator(_schema)]
Bought = Annotated[Purchase, bought(Purchase.ON_DEMAND, Purchase.SPOT)]
Money = Annotated[Decimal, BeforeValidator(lambda value: parse_money(str(value)))]
MoneyOrNothing = Annotated[Decimal, BeforeValidator(_money_or_nothing)]
Name = Annotated[str, matching(r"[a-z0-9][a-z0-9-]{0,62}", "gpu-large")]
Url = Annotated[str, matching(r"https?://\S+", "https://host/path")]
