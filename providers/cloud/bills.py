"""What the bills of clouds have in common: a line is told apart by the words of what was used."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Final

from autoscaler.domain.spending import BillPart

HOST: Final = "controller's host"
Kind = tuple[re.Pattern[str], BillPart, str]
"""What the words of a use are found to have, which part of a bill it is, and what it is called."""


def part_of(words: str, service: str, kinds: Iterable[Kind]) -> tuple[BillPart, str]:
    """The first kind that the words of a use are of; else it is beside, by its service."""
    for pattern, part, name in kinds:
        if pattern.search(words):
            return part, name
    return BillPart.BESIDE, service


def amount_of(text: str) -> Decimal:
    """An amount of money that stands in a reply.

    Raises:
        ValueError: it is none.
    """
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text} is no amount") from None
    if not amount.is_finite():
        raise ValueError(f"{text} is no amount")
    return amount
