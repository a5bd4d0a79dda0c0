"""What pools' documents of all clouds have in common: they say which `schema` they are in."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator

from autoscaler.domain.offer import Purchase
from autoscaler.spec.quantities import parse_money

SCHEMA: Final = 1


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


def _bought(value: Purchase) -> Purchase:
    if value is Purchase.RESERVED:
        raise ValueError("reserved is nothing to buy: write on-demand or spot")
    return value


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
Bought = Annotated[Purchase, AfterValidator(_bought)]
Money = Annotated[Decimal, BeforeValidator(lambda value: parse_money(str(value)))]
MoneyOrNothing = Annotated[Decimal, BeforeValidator(_money_or_nothing)]
Name = Annotated[str, matching(r"[a-z0-9][a-z0-9-]{0,62}", "gpu-large")]
Url = Annotated[str, matching(r"https?://\S+", "https://host/path")]
