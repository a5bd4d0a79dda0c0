"""Parsing and formatting of durations, money, priorities and times."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from autoscaler.domain.job_rules import LEAST_PRIORITY, MOST_PRIORITY
from autoscaler.domain.rules import large_amount, no_amount
from autoscaler.domain.text import quoted
from autoscaler.spec.forms import text_like

_UNITS_SECONDS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_NUMBER: Final = r"\d{1,9}(?:\.\d{1,9})?"
_DURATION: Final = re.compile(r"\s*".join(rf"(?:({_NUMBER})\s*{u})?" for u in _UNITS_SECONDS))
PRIORITIES: Final = {"low": 0.25, "normal": 1.0, "high": 4.0}
_MONEY: Final = re.compile(rf"\$?\s*({_NUMBER})")
_LARGE_MONEY: Final = re.compile(r"\$?\s*0*[1-9]\d{9,}(?:\.\d*)?")


def parse_duration(text: str) -> float:
    """Parse a duration such as ``90s``, ``15m``, ``4h``, ``2d`` or ``1h30m`` into seconds.

    Raises:
        ValueError: the text is not a duration, has no unit, or is 0.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(
            f"{quoted(text)} is not a duration: write a number and a unit, like 90s, 15m, 4h or "
            "1h30m"
        )
    seconds = sum(
        float(count) * unit
        for count, unit in zip(match.groups(), _UNITS_SECONDS.values(), strict=True)
        if count is not None
    )
    if seconds <= 0:
        raise ValueError(f"{quoted(text)} is not above 0: write a duration like 15m")
    return seconds


DURATION_PATTERN: Final = rf"^(?=.*[0-9])\s*{_DURATION.pattern}\s*$".replace(r"\d", "[0-9]")
DurationText = text_like(DURATION_PATTERN, "90s", "15m", "4h", "1h30m")
# Duration in a file, in seconds.
Duration = Annotated[
    float,
    BeforeValidator(lambda value: parse_duration(str(value)), json_schema_input_type=DurationText),
]
MONEY_PATTERN: Final = rf"^\s*{_MONEY.pattern}\s*$".replace(r"\d", "[0-9]")
Amount = Annotated[float, Field(gt=0, lt=1e9)]
MoneyText = text_like(MONEY_PATTERN, "$20", "0.35")
MomentText = text_like(
    rf"{DURATION_PATTERN}|^\s*[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}", "4h", "2026-12-01T08:00Z"
)


def parse_money(text: str) -> Decimal:
    """Parse an amount of US dollars such as ``500``, ``0.35`` or ``$500``.

    Raises:
        ValueError: the text is not an amount, is too large, or is 0.
    """
    match = _MONEY.fullmatch(text.strip())
    if _LARGE_MONEY.fullmatch(text.strip()):
        raise ValueError(large_amount(text))
    if match is None or Decimal(match[1]) == 0:
        raise ValueError(no_amount(text))
    return Decimal(match[1])


# Amount of US dollars in a file.
Money = Annotated[
    Decimal,
    BeforeValidator(
        lambda value: parse_money(str(value)), json_schema_input_type=Amount | MoneyText
    ),
]


def parse_priority(text: str) -> float:
    """Parse a priority: a word of `PRIORITIES`, or a number from 0.01 to 100.

    Raises:
        ValueError: the text is neither.
    """
    word = text.strip()
    if word in PRIORITIES:
        return PRIORITIES[word]
    if re.fullmatch(_NUMBER, word) and LEAST_PRIORITY <= float(word) <= MOST_PRIORITY:
        return float(word)
    raise ValueError(
        f"{quoted(text)} is not a priority: write {', '.join(PRIORITIES)} or a number from "
        f"{LEAST_PRIORITY:g} to {MOST_PRIORITY:g}"
    )


def format_priority(priority: float) -> str:
    """Return the word for a priority, or its number if it has no word."""
    words = {value: word for word, value in PRIORITIES.items()}
    return words.get(priority, f"{priority:g}")


def parse_moment(text: str, now_seconds: float) -> float:
    """Parse a future time into seconds since the Unix epoch.

    Args:
        text: duration from now, such as ``4h``, or date and time in ISO 8601 with a time zone,
            such as ``2026-12-01T08:00Z``.
        now_seconds: current time, seconds since the Unix epoch.

    Raises:
        ValueError: the text is neither, has no time zone, or is in the past.
    """
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return now_seconds + _parse_duration_of_moment(text)
    if time.tzinfo is None:
        raise ValueError(
            f"{quoted(text)} has no time zone: write a time of day and Z or an offset, "
            "like 2026-12-01T08:00Z or 2026-12-01T08:00+01:00"
        )
    seconds = time.timestamp()
    if seconds <= now_seconds:
        age = format_duration(now_seconds - seconds)
        raise ValueError(f"{quoted(text)} was {age} ago: write a future time")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as ``3h12m`` or ``45s``."""
    rest = round(seconds)
    parts = []
    for unit, unit_seconds in _UNITS_SECONDS.items():
        count, rest = divmod(rest, round(unit_seconds))
        parts.append((count, unit))
    first = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    shown = parts[first : first + 2]
    return "".join(
        f"{count}{unit}" for index, (count, unit) in enumerate(shown) if count or index == 0
    )


def format_money(usd: Decimal | float) -> str:
    """Return US dollars as text: ``$40``, ``$0.35``, ``$1,250.50``; all digits below a cent."""
    amount = Decimal(str(usd))
    if 0 < amount < Decimal("0.01"):
        return f"${amount.normalize():f}"
    return f"${amount:,.2f}".removesuffix(".00")


def _parse_duration_of_moment(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(
            f"{quoted(text)} is neither a duration like 4h nor a time like 2026-12-01T08:00Z"
        ) from error
