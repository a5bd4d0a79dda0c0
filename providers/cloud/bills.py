"""Shared parsing of clouds' bills: usage descriptions and amounts of money."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Final

from autoscaler.domain.spending import BillPart

HOST: Final = "controller's host"
Kind = tuple[re.Pattern[str], BillPart, str]
"""Pattern that matches a usage description, the part of the bill, and the name to show."""


def part_of(words: str, service: str, kinds: Iterable[Kind]) -> tuple[BillPart, str]:
    """Return the part and name of the first kind that matches; else `BESIDE` and the service."""
    for pattern, part, name in kinds:
        if pattern.search(words):
            return part, name
    return BillPart.BESIDE, service


def amount_of(text: str) -> Decimal:
    """Return the amount of money that `text` states.

    Raises:
        ValueError: `text` is not a finite number.
    """
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text} is not an amount of money") from None
    if not amount.is_finite():
        raise ValueError(f"{text} is not an amount of money")
    return amount
